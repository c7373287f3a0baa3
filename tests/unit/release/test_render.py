"""The renderer: the reference deployment by eye, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsctl.errors import SpecError
from opsctl.release import Release, render
from opsctl.release.kinds import ENV_NOT_ON_GPU, NOT_ON_GPU, gpu_key
from opsctl.spec.models import Service

HERE = Path(__file__).parent
KEY = "sk-canary-0123456789"


def described(**changes: Any) -> dict[str, Any]:
    return {**yaml.safe_load((HERE / "reference.yml").read_text())["kimi"], **changes}


def rendered(**changes: Any) -> Release:
    return render("kimi", Service(**described(**changes)), zipapp=b"zip")


def unchecked(**changes: Any) -> Service:
    """A service that the schema would refuse: the renderer is a line of defence of its own."""
    base = Service(model={"path": "/srv/m"}, engine={"version": "0.5.9"})
    for key, value in changes.items():
        head, _, tail = key.partition("__")
        new = getattr(base, head).model_copy(update={tail: value}) if tail else value
        base = base.model_copy(update={head: new})
    return base


@pytest.mark.parametrize("name", ["sglang-kimi.service", "release.json"])
def test_the_reference_deployment(name: str) -> None:
    """Reviewed by eye. To renew after a wished change: GOLDEN=write pytest …"""
    expect = {"kv": {"tokens": 159277}}
    release = render("kimi", Service(**described()), expect=expect, zipapp=b"")
    golden = HERE / "golden" / name
    if os.environ.get("GOLDEN") == "write":
        golden.write_bytes(release.files[name].content)
    assert release.files[name].content.decode() == golden.read_text()


def test_the_manifest_in_the_file_is_the_value() -> None:
    release = rendered()
    assert json.loads(release.files["release.json"].content) == release.manifest
    assert f"X-OpsctlRelease={release.digest}\n" in release.unit


def test_the_files_and_their_modes() -> None:
    plain = {name: oct(file.mode) for name, file in rendered().files.items()}
    assert plain == {
        "sglang-kimi.service": "0o644",
        "release.json": "0o644",
        "onhost.pyz": "0o644",
    }
    secret = rendered(secrets={"api-key": KEY, "env": {"HF_TOKEN": "hf_canary_x"}})
    assert {n: oct(f.mode) for n, f in secret.files.items() if n not in plain} == {
        "launch.py": "0o644",
        "secrets/api-key": "0o600",
        "secrets/env.HF_TOKEN": "0o600",
    }
    assert secret.files["secrets/api-key"].content == KEY.encode()
    assert secret.manifest["api_key_file"] == "secrets/api-key"
    assert KEY not in repr(secret)
    public = [f.content.decode() for n, f in secret.files.items() if not n.startswith("secrets/")]
    assert not any("canary" in text for text in public)


def test_the_zipapp_is_the_real_one_by_default() -> None:
    content = render("kimi", Service(**described())).files["onhost.pyz"].content
    assert content.startswith(b"PK")


def test_what_is_the_same_has_the_same_digest() -> None:
    digest = rendered().digest
    flags = described()["flags"]
    for value in (4, 4.0, "4.0", "4"):
        assert rendered(flags={**flags, "hicache-ratio": value}).digest == digest
    assert rendered(flags=dict(reversed(flags.items()))).digest == digest
    assert rendered(flags={**flags, "enable-metrics": False}).digest == digest
    assert rendered(gates={"soak": 99}, memory={"min_available": "1GiB"}).digest == digest
    assert rendered(env={"SGLANG_ENABLE_SPEC_V2": "1"}).digest == digest
    assert render("kimi", Service(**described()), expect={"a": 1}, zipapp=b"x").digest == digest


def test_what_differs_has_another_digest() -> None:
    flags = described()["flags"]
    changes: list[dict[str, Any]] = [
        {},
        {"flags": {**flags, "hicache-ratio": 2}},
        {"engine": {"version": "0.5.9", "root": "/opt/other"}},
        {"env": {}},
        {"port": 30001},
        {"gpus": [0, 1]},
        {"memory": {"swap": "allow"}},
        {"timing": {"drain": 90}},
        {"secrets": {"api-key": KEY}},
        {"secrets": {"api-key": KEY + "x"}},
        {"secrets": {"admin-api-key": KEY}},
        {"secrets": {"env": {"A": KEY}}},
    ]
    assert len({rendered(**change).digest for change in changes}) == len(changes)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"model__path": "/srv/a\nb"}, "model.path"),
        ({"model__path": "org/name"}, "model.path"),
        ({"model__served_name": "a\0b"}, "model.served_name"),
        ({"model__served_name": "\ud800"}, "model.served_name"),
        ({"user": "root\nExecStart=/bin/sh"}, "user"),
        ({"env": {"A": "a\0b"}}, "env.A"),
        ({"env": {"A\nB": "x"}}, "env.A\nB"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}, "gpus": (1,)}, "env.CUDA_VISIBLE_DEVICES"),
        ({"flags": {"tokenizer-path": "x" * 200_000}}, "flags.tokenizer-path"),
        ({"flags": {"hicache-rato": 4}}, "flags.hicache-rato"),
        ({"flags": {"api-key": KEY}}, "flags.api-key"),
        ({"flags": {"tp-size": 3, "nnodes": 2}}, "flags"),
        ({"engine__version": "0.5.9/../x"}, "engine.version"),
        ({"engine__root": "/opt/a:b"}, "engine.root"),
        ({"engine__root": "/opt/$x"}, "engine.root"),
    ],
)
def test_what_cannot_arrive_is_refused_with_its_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(SpecError) as refused:
        render("kimi", unchecked(**changes), zipapp=b"")
    assert [(p.service, p.key) for p in refused.value.problems] == [("kimi", key)]
    assert len(str(refused.value)) < 600 and KEY not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", "a..b", "A", "-a", "a b", "a\n", "x" * 65, "a%n"]
)
def test_a_name_that_climbs_or_confuses_is_refused(name: str) -> None:
    with pytest.raises(SpecError):
        render(name, unchecked(), zipapp=b"")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"secrets": {"api-key": "short"}}, "less than 8"),
        ({"secrets": {"api-key": "with a canary blank"}}, "visible ASCII"),
        ({"secrets": {"api-key": "canary\nline12"}}, "visible ASCII"),
        ({"secrets": {"admin-api-key": "k\u0456y-canary"}}, "visible ASCII"),
        ({"secrets": {"env": {"A": "canary\0canary"}}}, "NUL"),
        ({"secrets": {"api-key": "kimi-k2.5"}}, "also stands elsewhere"),
        ({"secrets": {"env": {"A": "pa$$w%rd"}}, "env": {"B": "x pa$$w%rd"}}, "also stands"),
        ({"secrets": {"env": {"A": 'a"b"c"d"e'}}, "env": {"B": 'a"b"c"d"e'}}, "also stands"),
    ],
)
def test_a_secret_that_could_not_stay_one_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecError, match=why) as refused:
        rendered(**changes)
    for secret in Service(**described(**changes)).secrets.env.values():
        assert secret.get_secret_value() not in str(refused.value)
    assert "canary" not in str(refused.value)


def test_parsers_resolve_the_gates() -> None:
    assert rendered().manifest["gates"]["reasoning"] is True
    bare = rendered(flags={"tp-size": 2})
    assert (bare.manifest["gates"]["reasoning"], bare.manifest["gates"]["tools"]) == (False, False)
    assert bare.manifest["ranks"] == ["TP0", "TP1"]
    wished = rendered(flags={}, gates={"tools": True})
    assert wished.manifest["gates"]["tools"] is True


def test_a_name_for_clients_is_the_path_by_default() -> None:
    bare = rendered(model={"path": "/srv/m"})
    assert bare.manifest["model"]["served_name"] == "/srv/m"
    assert "--served-model-name" not in bare.unit


def test_the_host_tier_does_not_shape_gpu_memory_but_much_else_does() -> None:
    flags = described()["flags"]

    def key(**changes: Any) -> str:
        return str(rendered(**changes).manifest["gpu_key"])

    assert key(flags={**flags, "hicache-ratio": 2, "enable-metrics": True}) == key()
    assert key(port=1, secrets={"api-key": KEY}) == key()
    for flag, value in {
        "mem-fraction-static": 0.9,
        "hicache-io-backend": "direct",
        "chunked-prefill-size": 4096,
    }.items():
        assert key(flags={**flags, flag: value}) != key(), flag
    assert key(env={}) != key()
    assert key(gpus=[0, 1]) != key()
    assert key(gpus=[0, 1]) == key(gpus=[2, 3])
    assert gpu_key("0.5.9", "/a", None, {}, {}) != gpu_key("0.5.23", "/a", None, {}, {})


def test_every_listed_flag_is_a_canonical_name_of_some_version() -> None:
    from opsctl.engine import catalogue, versions

    known = {name for version in versions() for name in catalogue(version).flags}
    assert set(NOT_ON_GPU) - known == set()
    assert all({**NOT_ON_GPU, **ENV_NOT_ON_GPU}.values())


def test_a_value_that_the_template_lacks_is_an_error_and_not_a_blank() -> None:
    from jinja2 import UndefinedError

    from opsctl.release.unit import _template

    with pytest.raises(UndefinedError, match="description"):
        _template().render()
