"""Not one setting of a unit is dropped without a word: each is carried, or named in the report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opsctl import paths
from opsctl.importing import Asked, Imported, from_text
from opsctl.importing.unit import directives
from opsctl.importing.unit.fates import CONTAINER, FATES, OURS, READ
from tests.unit.importing.imports_table import examples

EXAMPLES = [(name, one) for name in ("units.txt", "public.txt") for one in examples(name)
            if "[Service]" in one.text or "[Container]" in one.text]  # fmt: skip
PYTHON = "/opt/sglang/0.5.9/bin/python -m sglang.launch_server --model-path /srv/models/m"
# What is read into the command line, the variables or the user; each is checked by itself below.
CARRIED = {"ExecStart", "User", *READ["Container"]}


def take(text: str) -> Imported:
    return from_text([("/etc/systemd/system/sglang-k.service", text)])


def unit(*lines: str) -> str:
    return "\n".join(["[Service]", *lines, f"ExecStart={PYTHON}", ""])


def told(found: Imported) -> str:
    return "\n".join(f"{note.kind}: {note.what}: {note.why}" for note in found.notes)


def settings(text: str) -> list[tuple[str, str]]:
    """(section, key) of every line that sets something, read in another way than the product's."""
    found, section = [], ""
    for line in re.sub(r"\\\n[^\n]*", "", re.sub(r"\\\n(?:[^\n]*\\\n)*[^\n]*", "", text)).split(
        "\n"
    ):
        if match := re.fullmatch(r"\[(\w+)\]", line.strip()):
            section = match[1]
        elif match := re.match(r"([A-Z]\w+)=\S", line.strip()):
            found.append((section, match[1]))
    return found


@pytest.mark.parametrize(("_", "example"), EXAMPLES, ids=[one.name for _, one in EXAMPLES])
def test_every_setting_of_every_example(_: str, example: object) -> None:
    text = example.text  # type: ignore[attr-defined]
    found = from_text([("", text)], asked=Asked(version="0.5.9"))
    if any(str(one).startswith(("starts no", "this starts")) for one in found.problems):
        assert not found.notes and not found.risks  # the error alone: nothing else is of use
        return
    report = told(found) + "".join(str(problem) for problem in found.problems)
    assert settings(text)
    for section, key in settings(text):
        if key in CARRIED and (section, key) != ("Container", "User"):
            continue
        if key in ("Environment", "EnvironmentFile"):
            continue  # below
        assert f"{key}=" in report, (section, key)


@pytest.mark.parametrize(("_", "example"), EXAMPLES, ids=[one.name for _, one in EXAMPLES])
def test_every_variable_of_every_example(_: str, example: object) -> None:
    """Of what becomes a service: in it, or named in the report."""
    text = example.text  # type: ignore[attr-defined]
    found = from_text([("", text)], asked=Asked(version="0.5.9"))
    if found.service is None:
        return
    kept = {**found.service.get("env", {}), **found.service.get("secrets", {}).get("env", {})}
    for name in re.findall(r"^Environment=\"?([A-Z_]\w*)=", text, re.MULTILINE):
        assert name in kept or name in told(found), name


def test_the_examples_are_the_corpus() -> None:
    assert len([one for name, one in EXAMPLES if name == "units.txt"]) >= 14
    keys = {key for _, one in EXAMPLES for _, key in settings(one.text)}
    assert len(keys) > 25


BINDING = [
    "Nice=-5", "CPUAffinity=0-31", "NUMAPolicy=bind", "NUMAMask=0", "OOMScoreAdjust=-900",
    "MemoryMax=400G", "MemoryHigh=300G", "CPUQuota=800%", "TasksMax=100", "LimitNPROC=9",
    "IOWeight=9", "Slice=ai.slice", "ExecStartPre=/bin/a b", "ExecStartPost=/bin/c",
    "ExecStopPost=/bin/d", "ExecReload=/bin/e", "SupplementaryGroups=video", "RuntimeMaxSec=1d",
    "StateDirectory=x", "ReadWritePaths=/x", "AllowedCPUs=0-3", "WatchdogSec=30",
    "SetCredential=a:b", "RootDirectory=/x", "NoSuchSetting=1", "MemoryMaxx=1",
]  # fmt: skip


@pytest.mark.parametrize("line", BINDING)
def test_what_has_no_place_is_told_as_lost(line: str) -> None:
    (note,) = [n for n in take(unit(line)).notes if n.kind == "lost"]
    assert note.what.startswith(line.partition("=")[0] + "=")
    assert len(note.why) > 30  # what it means, and what to do


def test_what_opsctl_answers_in_another_way() -> None:
    lines = ["Restart=always", "RestartSec=5", "Type=simple", "KillMode=process"]
    lines += ["WorkingDirectory=/srv/x", "LimitNOFILE=9", "TimeoutStartSec=9"]
    report = told(take(unit(*lines)))
    for line in (
        *("Restart=always: opsctl's unit says Restart=on-failure", "RestartSec=5: "),
        *("Type=simple: ", "KillMode=process: ", "WorkingDirectory=/srv/x: ", "timing.cap"),
        "LimitNOFILE=9: opsctl's unit says LimitNOFILE=1048576",
    ):
        assert line in report
    assert "lost" not in report


def test_what_is_the_same() -> None:
    same = ["Type=exec", "KillMode=mixed", "Restart=on-failure", "RestartSec=30", "PrivateTmp=true",
            "LimitMEMLOCK=infinity", "UMask=0077", "User=llm", "Group=llm"]  # fmt: skip
    found = take(unit(*same))
    assert {note.kind for note in found.notes} == {"carried", "told"}
    assert found.service is not None and found.service["user"] == "llm"


@pytest.mark.parametrize(
    ("line", "drain"),
    [
        ("TimeoutStopSec=300", 300),
        ("TimeoutStopSec=5min 30s", 330),
        ("TimeoutSec=90", 90),
        ("TimeoutStopSec=1.5", 2),
        ("TimeoutStopSec=60", None),
        ("TimeoutStopSec=infinity", None),
        ("TimeoutStopSec=0", None),
        ("TimeoutStopSec=soon", None),
        ("", None),
    ],
)
def test_the_time_to_stop(line: str, drain: int | None) -> None:
    found = take(unit(line))
    assert found.service is not None
    assert found.service.get("timing") == (None if drain is None else {"drain": drain})
    assert line in told(found)


def test_what_is_set_again_and_what_systemd_ignores() -> None:
    report = told(take(unit("Nice=3", "Nice=4", "ExecStartPre=/a", "ExecStartPre=", "nonsense")))
    assert "Nice=3, ExecStartPre=/a: is set again later on" in report
    assert "lost: Nice=4: " in report
    assert "nonsense: no setting in a section" in report


def test_a_secret_in_a_setting_is_not_told() -> None:
    lines = ['ExecStartPre=/usr/bin/curl -H "Authorization: Bearer abcdefghijkl" http://h/',
             f"ExecStop=/bin/{'x' * 90} --token hf_abcdefghijklmnop",
             "SetCredential=key:sesamesesame", "MY_TOKEN=outside-of-systemd"]  # fmt: skip
    report = told(take(unit(*lines)))
    for part in ("abcdef", "hf_", "sesame", "outside"):
        assert part not in report
    assert "ExecStartPre=/usr/bin/curl" in report


def test_settings_of_a_container_file() -> None:
    lines = ["[Container]", "Image=x:v0.5.9", f"Exec={PYTHON}", "Network=host", "AutoUpdate=yes",
             "HealthCmd=x", "Volume=/srv:/srv"]  # fmt: skip
    report = told(from_text([("/etc/containers/systemd/a.container", "\n".join(lines))]))
    for line in ("Network=host", "AutoUpdate=yes", "HealthCmd=x"):
        assert line in report
    assert set(CONTAINER) - {""} <= {"ContainerName", "Network", "User", "ShmSize", "Secret",
                                     "AutoUpdate", "Pull"}  # fmt: skip


def test_ours_is_what_the_template_says() -> None:
    template = (paths.share() / "templates" / "sglang.service.j2").read_text()
    literal = directives.literal(template)
    rendered = {"RestartSec", "StartLimitBurst"}
    assert {k: v for k, v in OURS.items() if k not in rendered} == {
        k: v for k, v in literal.items() if k in OURS
    }
    assert set(literal) - set(OURS) == {
        *("Wants", "After", "CacheDirectoryMode", "ExecStartPre", "RestrictAddressFamilies"),
        "SystemCallFilter",
    }
    from opsctl.release import unit as made

    assert OURS["RestartSec"] == f"{made.RESTART_SEC}s"
    assert OURS["StartLimitBurst"] == str(made.START_LIMIT_BURST)
    assert directives.STOP_MARGIN == made.STOP_MARGIN


# The settings that a service of systemd 252 has, as `systemd --dump-configuration-items` prints
# them: those that opsctl knows nothing of are listed, so that no other is.
SYSTEMD = Path(__file__).parent / "examples" / "systemd_settings.txt"


def test_every_setting_that_systemd_has() -> None:
    names = SYSTEMD.read_text().split()
    unknown = [n for n in names if n not in FATES and directives._prefixed(n) is None]
    assert set(unknown) <= {*READ["Service"]}


OWN = f"""[Unit]
Description=SGLang 0.5.9: kimi
X-OpsctlRelease={"ab" * 32}
[Service]
Type=simple
Nice=5
ExecStart={PYTHON}
"""


def test_one_of_our_own_units_is_named_as_such() -> None:
    found = from_text([("/etc/systemd/system/sglang-kimi.service", OWN)])
    (problem,) = found.problems
    assert "opsctl's own: release abababababab of the service kimi" in problem.message
    assert "opsctl config show kimi" in problem.hint
    assert found.service is None and not found.risks and not found.notes
    assert "of the service kimi" in from_text([("", OWN)]).problems[0].message
    again = from_text([("", OWN)], asked=Asked(own=True))
    assert again.service is not None and not again.risks
