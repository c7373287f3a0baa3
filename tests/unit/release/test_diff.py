"""Diffs that show no secret, and the reasons of a plan."""

from __future__ import annotations

from typing import Any

from opsctl.release import Release, render
from opsctl.release.diff import diff, quiet_reasons, restart_reasons, verdict
from opsctl.spec.models import Service

KEY = "sk-canary-0123456789"
FLAGS = {"tp-size": 8, "hicache-ratio": 2.0, "enable-hierarchical-cache": True}


def release(**changes: Any) -> Release:
    base: dict[str, Any] = {
        "model": {"path": "/srv/models/K", "served_name": "k"},
        "engine": {"version": "0.5.9"},
        "flags": FLAGS,
    }
    return render("kimi", Service(**{**base, **changes}), zipapp=b"PK\x03\x04\xff")


def contents(one: Release) -> dict[str, bytes]:
    return {name: file.content for name, file in one.files.items()}


def reasons(new: Release, old: Release | None = None) -> list[str]:
    old = old or release()
    return restart_reasons(old.manifest, new.manifest, old.unit, new.unit)


def test_the_same_release_has_no_diff() -> None:
    assert diff(contents(release()), contents(release())) == ""


def test_a_changed_flag_shows_in_both_files() -> None:
    text = diff(contents(release()), contents(release(flags={**FLAGS, "hicache-ratio": 4})))
    assert "-    --hicache-ratio=2.0 \\\n+    --hicache-ratio=4.0 \\\n" in text
    assert '-  "hicache-ratio": 2.0,\n' in text
    assert "--- a/sglang-kimi.service\n+++ b/sglang-kimi.service\n" in text
    assert "onhost.pyz" not in text


def test_secrets_are_named_and_never_shown() -> None:
    with_key = release(secrets={"api-key": KEY, "env": {"TOKEN": "hf-canary-1"}})
    other = release(secrets={"api-key": KEY + "2"})
    assert "secret api-key: added\n" in diff(contents(release()), contents(with_key))
    text = diff(contents(with_key), contents(other))
    assert "secret api-key: changed\n" in text and "secret env.TOKEN: removed\n" in text
    assert "canary" not in text


def test_a_binary_is_shown_by_its_hash_and_a_new_file_as_new() -> None:
    text = diff({"onhost.pyz": b"\xff"}, {"onhost.pyz": b"\xfe", "a": b"x\n"})
    assert text.splitlines()[:4] == ["--- /dev/null", "+++ b/a", "@@ -0,0 +1 @@", "+x"]
    assert text.splitlines()[4].startswith("onhost.pyz: a8100ae6aa19 → ")


def test_reasons_for_a_restart() -> None:
    assert reasons(release(flags={**FLAGS, "hicache-ratio": "4"})) == ["hicache-ratio 2.0 → 4.0"]
    assert reasons(release(flags={"tp-size": 4, "trust-remote-code": True})) == [
        "enable-hierarchical-cache on → unset",
        "hicache-ratio 2.0 → unset",
        "tp-size 8 → 4",
        "trust-remote-code unset → on",
    ]
    assert reasons(release(engine={"version": "0.5.23"}, flags={}), release(flags={})) == [
        "engine root /opt/sglang/0.5.9 → /opt/sglang/0.5.23",
        "engine version 0.5.9 → 0.5.23",
    ]
    assert reasons(release(port=30001)) == ["port 30000 → 30001"]
    assert reasons(release(env={"A": "1"})) == ["env A unset → 1"]
    assert reasons(release(gpus=[0, 1])) == ["gpus unset → 0,1"]
    assert reasons(release(memory={"swap": "allow"})) == ["memory swap forbid → allow"]
    assert reasons(release(timing={"drain": 90})) == ["timing drain 60.0 → 90.0"]
    assert restart_reasons(None, release().manifest) == ["first release"]


def test_a_changed_secret_is_a_reason_and_is_not_shown() -> None:
    one, two = release(secrets={"api-key": KEY}), release(secrets={"api-key": KEY + "x"})
    assert reasons(two, one) == ["secret api-key changed"]
    assert reasons(one) == ["secret api-key added"]
    assert reasons(release(), one) == ["secret api-key removed"]


def test_another_template_is_told_by_its_lines() -> None:
    old, new = release(), release()
    manifest = {**new.manifest, "digest": "f" * 64}
    unit = new.unit.replace("UMask=0077", "UMask=0027").replace(new.digest, "f" * 64)
    assert restart_reasons(old.manifest, manifest, old.unit, unit) == [
        "unit: -UMask=0077",
        "unit: +UMask=0027",
    ]
    assert restart_reasons(old.manifest, manifest) == [
        "the unit's text, or the launcher, is of another version of opsctl"
    ]


def test_the_verdict_in_one_line() -> None:
    old = release().manifest

    def told(**changes: Any) -> str:
        return verdict(old, release(**changes).manifest)

    assert told() == "no restart: nothing but comments or order differs"
    assert told(gates={"soak": 60}) == "no restart: gates soak 30.0 → 60.0"
    assert told(timing={"stall": 60}) == "no restart: timing stall 900.0 → 60.0"
    assert told(flags={**FLAGS, "hicache-ratio": 4}) == "restart: hicache-ratio 2.0 → 4.0"


def test_release_0_is_taken_over() -> None:
    """Of what stood there before opsctl only the unit is known: no engine, no flags."""
    zero = {"digest": "0", "service": "kimi", "ranks": [], "expect": None}
    new = {"digest": "b" * 64}
    assert verdict(zero, new) == "restart: takes over the unit that stood here before opsctl"


def test_nothing_is_taken_over_by_a_service_that_is_deployed() -> None:
    old: dict[str, Any] = {"gates": {}, "memory": {}, "timing": {}, "expect": None}
    told = quiet_reasons(old, {**old, "takes_over": "ssh.service"})
    assert told == [
        "takes_over ssh.service does nothing: the service is deployed, nothing is left to take"
    ]
    assert quiet_reasons({**old, "takes_over": "a.service"}, old) == [
        "takes_over a.service → unset"
    ]
