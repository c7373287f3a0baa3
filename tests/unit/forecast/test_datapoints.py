"""Public figures of real starts against our arithmetic, and docs/datapoints.md against both."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.forecast.datapoints.table import DOC, compared, document, rows


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["id"])
def test_our_figure_is_the_logs(row: dict[str, Any]) -> None:
    found = list(compared(row))
    assert found
    if "gap" in row:  # cannot be reproduced: the table says why
        assert [figure.ours for figure in found] == [None]
        return
    wrong = [figure for figure in found if not figure.good]
    assert not wrong, wrong


def test_at_least_fifteen_beside_the_sixteen_that_were_known() -> None:
    assert len(rows()) >= 16 + 15
    assert sum("gap" not in row for row in rows()) >= 30


def test_the_document_is_what_the_rows_give() -> None:
    assert DOC.read_text() == document(), (
        "stale: run `python -m tests.unit.forecast.datapoints.table`"
    )
