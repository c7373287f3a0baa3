"""Whether what runs is what a release would start: real command lines against rendered releases."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl import spec
from opsctl.release import Release, render
from opsctl.rollout.model import Takeover
from opsctl.rollout.takeover import compare

KEY = "sk-canary-0123456789"
ARGV = [
    "/opt/sglang/0.5.9/bin/python",
    "-m",
    "sglang.launch_server",
    "--model-path",
    "/srv/m",
    "--tp",
    "4",
    "--hicache-ratio",
    "2",
    "--enable-hierarchical-cache",
    "--host",
    "127.0.0.1",
    "--port=30000",
]
ENVIRON = {
    "PATH": "/usr/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "INVOCATION_ID": "i1",
    "SGLANG_ENABLE_SPEC_V2": "1",
}


def release(**changes: Any) -> Release:
    described: dict[str, Any] = {
        "model": {"path": "/srv/m"},
        "engine": {"version": "0.5.9"},
        "flags": {"tp-size": 4, "hicache-ratio": 2.0, "enable-hierarchical-cache": True},
        "env": {"SGLANG_ENABLE_SPEC_V2": "1"},
        **changes,
    }
    services, problems = spec.check({"kimi": described}, {})
    assert not problems, problems
    return render("kimi", services["kimi"], zipapp=b"")


def process(argv: list[str] | None = None, **changes: Any) -> dict[str, Any]:
    engine = {"root": "/opt/sglang/0.5.9", "version": "0.5.9+rehearsal", "installed": 10.0}
    return {
        "argv": ARGV if argv is None else argv,
        "environ": ENVIRON,
        "cwd": "/srv",
        "user": "root",
        "started": 20.0,
        "limits": {"nofile": 1024, "memlock": -1},
        "invocation": "i1",
        "engine": engine,
        **changes,
    }


def differs(told: Any, wanted: Release | None = None) -> tuple[str, ...]:
    found = compare(told, wanted or release())
    assert found is not None
    return found.differs


def test_the_same_command_line_however_it_is_written() -> None:
    found = compare(process(), release())
    assert found == Takeover(
        "i1",
        (),
        (
            "user root → sglang",
            "LimitNOFILE 1024 → 1048576",
            "sandboxing of the new unit",
            "HOME /root → /var/cache/opsctl/kimi: kernels are compiled anew there",
        ),
    )
    assert Takeover.from_json(found.as_json()) == found


@pytest.mark.parametrize(
    "argv",
    [
        ["/opt/sglang/0.5.9/bin/python3", "-u", *ARGV[1:]],
        [*ARGV, "--hicache-ratio", "2.00"],  # the last one counts
        [*ARGV[:4], "m", *ARGV[5:]],  # from its working directory /srv
        [*ARGV[:4], "/srv/m/", *ARGV[5:], "--served-model-name", "/srv/m"],
        [*ARGV, "--dp-size", "1", "--tokenizer-path=/srv/m"],  # what the engine takes anyway
    ],
    ids=["python", "twice", "relative", "slash", "defaults"],
)
def test_what_means_the_same_is_the_same(argv: list[str]) -> None:
    assert differs(process(argv)) == ()


@pytest.mark.parametrize(
    ("told", "wanted", "reasons"),
    [
        (process(), {"flags": {"tp-size": 4, "hicache-ratio": 4.0,
                               "enable-hierarchical-cache": True}}, ["hicache-ratio 2.0 → 4.0"]),
        (process(), {"env": {}}, ["env SGLANG_ENABLE_SPEC_V2 1 → unset"]),
        (process(), {"env": {"SGLANG_ENABLE_SPEC_V2": "1", "NCCL_DEBUG": "INFO"}},
         ["env NCCL_DEBUG unset → INFO"]),
        (process(), {"gpus": [0, 1, 2, 3]}, ["env CUDA_VISIBLE_DEVICES unset → 0,1,2,3"]),
        (process(environ={**ENVIRON, "CUDA_VISIBLE_DEVICES": "0, 1,2,3"}),
         {"gpus": [0, 1, 2, 3]}, []),
        (process(environ={**ENVIRON, "LD_PRELOAD": "/x.so"}), {},
         ["env LD_PRELOAD /x.so → unset"]),
        (process(), {"env": {"SGLANG_ENABLE_SPEC_V2": "1", "LANG": "de_DE"}},
         ["env LANG C.UTF-8 → de_DE"]),
        (process(), {"env": {"SGLANG_ENABLE_SPEC_V2": "1", "HOME": "/srv/h"}},
         ["env HOME /root → /srv/h"]),
        (process(), {"port": 30001}, ["port 30000 → 30001"]),
        (process(), {"secrets": {"api-key": KEY}}, ["api-key added (secret)"]),
        (process([*ARGV, "--api-key", KEY]), {"secrets": {"api-key": KEY}}, []),
        (process([*ARGV, "--api-key=" + KEY + "x"]), {"secrets": {"api-key": KEY}},
         ["api-key changed (secret)"]),
        (process([*ARGV, "--api-key", KEY]), {}, ["api-key removed (secret)"]),
        (
            process([*ARGV, "--api-key", KEY], environ={**ENVIRON, "X": KEY}),
            {},
            ["api-key removed (secret)", "env X removed (secret)"],
        ),
        (process(environ={**ENVIRON, "HF_TOKEN": KEY}), {}, ["env HF_TOKEN removed (secret)"]),
        (process(environ={**ENVIRON, "HF_TOKEN": KEY}),
         {"secrets": {"env": {"HF_TOKEN": KEY}}}, []),
        (process(engine={"root": "/opt/sglang/0.5.9", "version": "0.5.8", "installed": 1.0}), {},
         ["engine 0.5.8 → 0.5.9"]),
        (process(engine={"root": None, "version": None, "installed": None}), {},
         ["engine unknown → 0.5.9"]),
        (process(engine={"root": "/venv", "version": "0.5.9", "installed": 1.0}), {},
         ["engine root /venv → /opt/sglang/0.5.9"]),
        (process(engine={"root": "/opt/sglang/0.5.9", "version": "0.5.9", "installed": 30.0}), {},
         ["the engine was installed anew since the process began"]),
        (process(["/bin/bash", "-c", "x; y"]), {},
         ["the unit's main process is bash, and not the engine"]),
    ],
)  # fmt: skip
def test_each_difference_is_named_and_no_secret_is_told(
    told: dict[str, Any], wanted: dict[str, Any], reasons: list[str]
) -> None:
    found = compare(told, release(**wanted))
    assert found is not None and list(found.differs) == reasons
    assert KEY not in repr(found)


def test_what_of_the_old_unit_a_start_would_change() -> None:
    unit = {
        "stale": True,
        "enabled": "disabled",
        "link": "/opt/ops/kimi.service",
        "staying": ["/etc/systemd/system.control/sglang-kimi.service.d/50-MemoryMax.conf"],
    }
    found = compare(process(unit=unit), release())
    assert found is not None and found.differs == ()
    assert found.later[-4:] == (
        "it starts at boot, which the old unit did not (disabled)",
        "the old unit was edited after this start: release 0 is the edited text",
        "the old unit is a link to /opt/ops/kimi.service: release 0 is its text, not the link",
        "drop-ins that stay and change the new unit, too: "
        "/etc/systemd/system.control/sglang-kimi.service.d/50-MemoryMax.conf",
    )
    restarted = compare(process(unit=unit), release(port=30001))
    assert restarted is not None and restarted.later == found.later


def test_arguments_that_this_version_does_not_take_are_told() -> None:
    (reason,) = differs(process([*ARGV, "--no-such-flag", "1"]))
    assert reason.startswith("the process has arguments that SGLang 0.5.9 does not take")


def test_nothing_to_take_over() -> None:
    assert compare(None, release()) is None


def test_what_of_the_old_unit_ends_with_the_next_start_is_named() -> None:
    unit = {"aside": ["10-stop.conf", "20-env.conf"], "front": "numactl"}
    found = compare(process(unit=unit), release())
    assert found is not None and not found.differs
    assert found.later[-2:] == (
        "drop-ins go, set aside with release 0: 10-stop.conf, 20-env.conf",
        "numactl no longer stands before the engine: what it binds or sets ends",
    )
