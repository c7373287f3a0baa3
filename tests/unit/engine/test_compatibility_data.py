"""The figures of driver, CUDA, torch, SGLang and GPU architecture: whole, and with sources."""

from __future__ import annotations

import pytest

from opsctl import engine
from opsctl.engine.compatibility import data, driver_problem, needs, numbers


def test_every_release_of_the_catalogue_has_a_row() -> None:
    assert set(data()["engine"]) == set(engine.versions())
    for version in engine.versions():
        need = needs(version)
        assert need["torch"] in data()["torch"] and "==" in need["kernel"], version
        assert len(numbers(need["driver"])) == 3


def test_every_figure_has_a_source() -> None:
    assert data()["engine_sources"]
    for row in (*data()["cuda"].values(), *data()["torch"].values()):
        assert row["sources"]
    assert data()["kernel"]["sources"] and data()["least"]["sources"]


@pytest.mark.parametrize(
    ("version", "driver", "said"),
    [
        ("0.5.9", "550.54.14", ""),
        ("0.5.9", "550.127.08", ""),  # older than CUDA 12.8: the same major is enough (PR 11052)
        ("0.5.9", "550.54.13", "550.54.14 or newer"),
        ("0.5.11", "575.57.08", "580.65.06 or newer"),
        ("0.5.23", "610.57.04", ""),
        ("9.9.9", "1.0", ""),  # nothing is known, nothing is claimed
    ],
)
def test_a_driver_is_judged_by_major(version: str, driver: str, said: str) -> None:
    found = driver_problem(version, driver)
    assert said in found if said else found == ""


def test_versions_compare_by_number() -> None:
    assert numbers("580.65.06") > numbers("580.9") > numbers("99.100.100")
    assert numbers("560.35.03-beta") == (560, 35)
