"""`opsctl doctor`: what it sends, what it shows, how it ends; hosts are fakes."""

import json
import time

import pytest

from opsctl.errors import OpsctlError, Problem, SpecError, Unreachable
from opsctl.remote.onhost import NoPython
from opsctl.views import doctor as view


def check(name, status="pass", detail="well", fault="", cause="", hint=""):
    return {"id": name, "status": status, "detail": detail, "cause": cause, "hint": hint,
            "fault": fault, "service": ""}  # fmt: skip


DISK = check("disk", "fail", "1 MiB are free for /var/lib/opsctl", "disk-full", "why", "df -h /var")
FREE = check("clock", "warn", "no service that would do it runs", "clock-free", "why", "mend it")


def answers(cli, name, *checks, late=0.0):
    cli.hosts[name].verbs["doctor"] = lambda call: {
        "schema_version": 1, "host": name, "time": time.time() + late, "checks": list(checks)
    }  # fmt: skip


def test_a_healthy_host_is_one_line_and_exit_0(cli):
    answers(cli, "h1", check("os"), check("gpus"))
    answers(cli, "h2", check("os"), check("gpus"))
    done = cli("doctor")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "✓ h1, h2: 3 checks passed\n"


def test_the_host_is_told_what_is_described_for_it(cli):
    answers(cli, "h1", check("os"))
    cli("doctor", "--limit", "h1")
    assert len(cli.hosts["h1"].calls) == 1 and not cli.hosts["h2"].calls
    (manifest,) = cli.hosts["h1"].calls[0].json["manifests"]
    assert manifest["service"] == "kimi" and len(manifest["ranks"]) == 8
    assert manifest["needs"]["driver"] == "550.54.14"
    assert cli.hosts["h1"].closed


def test_failures_come_first_and_what_hosts_share_is_told_once(cli):
    answers(cli, "h1", FREE, DISK, check("os"))
    answers(cli, "h2", FREE, check("os"), check("gpus"))
    done = cli("doctor")
    assert done.exit_code == 1 and "a check failed on h1" in done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert [line.split()[:3] for line in lines if line[0] in "✗!✓"] == [
        ["✗", "disk", "h1:"],
        ["!", "clock", "h1,"],
        ["✓", "h1:", "2"],
        ["✓", "h2:", "3"],
    ]
    assert done.stdout.count("no service that would do it runs") == 1
    assert "→ df -h /var" in lines and "→ mend it" in lines


@pytest.mark.parametrize("before", [True, False])
def test_what_is_to_be_typed_is_for_the_inventory_that_was_given(cli, tmp_path, before):
    given = tmp_path / "other fleet.yml"
    given.write_text("all:\n")
    answers(cli, "h1", check("unit", "fail", "d", "unit-gone", "why", "opsctl deploy kimi"),
            check("user", "fail", "d", "user-missing", "why",
                  "ansible-playbook playbooks/deploy.yml"))  # fmt: skip
    option = ("-i", str(given))
    verb = ("doctor", "--limit", "h1", "-o", "json")
    done = cli(*option, *verb) if before else cli(*verb, *option)
    one, other = (c["hint"] for c in json.loads(done.stdout)["checks"] if c["hint"])
    assert one == f"opsctl deploy kimi --limit h1 -i '{given}'"
    assert other.startswith(f"ansible-playbook -i '{given}' ")
    shown = " ".join(cli("doctor", "--limit", "h1", *option).stdout.split())
    assert one in shown and f"ansible-playbook -i '{given}' " in shown


def test_eight_cards_with_one_fault_are_one_line(cli):
    cards = [check("link", "warn", f"GPU {n}: 8 of 16 lanes", "link-narrow") for n in range(8)]
    answers(cli, "h1", *cards)
    text = cli("doctor", "--limit", "h1").stdout
    assert "GPU 2: 8 of 16 lanes; and 5 more like it" in text and "GPU 3" not in text
    flat = json.loads(cli("doctor", "--limit", "h1", "-o", "json").stdout)
    assert flat["warnings"] == 8


def test_the_document_is_flat(cli):
    answers(cli, "h1", DISK, check("xid", "unknown", "not told"))
    done = cli("doctor", "--limit", "h1", "-o", "json")
    document = json.loads(done.stdout)
    assert done.exit_code == 1
    assert {key: document[key] for key in ("ok", "failures", "warnings", "unknown", "passed")} == {
        "ok": False, "failures": 1, "warnings": 0, "unknown": 1, "passed": 1,
    }  # fmt: skip
    assert document["checks"][1] == {"host": "h1", **DISK}
    lines = cli("doctor", "--limit", "h1", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["ssh", "disk", "xid"]


def test_what_could_not_be_examined_is_a_finding_with_an_exit_code_of_its_own(cli):
    answers(cli, "h1", DISK)
    hint = "allow ops NOPASSWD in sudoers"
    cli.hosts["h2"].verbs["doctor"] = OpsctlError("sudo is refused for ops", step="sudo", hint=hint)
    done = cli("doctor")
    assert done.exit_code == 2 and "could not be examined: h2" in done.stderr
    assert "sudo" in done.stdout and hint in done.stdout and "1 MiB" in done.stdout
    cli.hosts["h2"].verbs["doctor"] = NoPython("no Python interpreter was found", hint="install it")
    done = cli("doctor", "--limit", "h2", "-o", "json")
    found = json.loads(done.stdout)["checks"]
    assert (done.exit_code, [c["fault"] for c in found]) == (2, ["python-missing"])


@pytest.mark.parametrize(
    ("error", "fault", "code"),
    [
        (Unreachable("timed out", step="connect"), "ssh-unreachable", 4),
        (Unreachable("the jump is down", step="jump"), "ssh-jump", 4),
        (Unreachable("no key", step="login"), "ssh-login", 4),
        (Unreachable("another", step="host key"), "ssh-host-key", 4),
        (Unreachable("no session", step="session"), "ssh-unreachable", 4),
        (OpsctlError("nologin", step="shell"), "ssh-shell", 2),
        (OpsctlError("refused", step="sudo"), "sudo-refused", 2),
        (NoPython("3.6", old=True), "python-old", 2),
        (OpsctlError("disk full", step="doctor"), "not-examined", 2),
    ],
)
def test_each_trouble_on_the_way_is_a_check_with_what_mends_it(cli, error, fault, code):
    cli.hosts["h1"].verbs["doctor"] = error
    done = cli("doctor", "--limit", "h1", "-o", "json")
    (found,) = json.loads(done.stdout)["checks"]
    assert (done.exit_code, found["fault"]) == (code, fault)
    assert found["hint"] and found["cause"]


def test_a_setting_that_cannot_be_honoured_says_what_to_write():
    problem = Problem("is not supported", host="h1", key="ansible_become_user", allowed="root")
    (found,) = view.checks(SpecError([problem]))
    assert (found["fault"], found["hint"]) == (
        "ssh-setting",
        "in the inventory: ansible_become_user: root",
    )


def test_a_host_that_is_not_reached_counts_most(cli):
    answers(cli, "h1", DISK)
    cli.hosts["h2"].verbs["doctor"] = Unreachable("timed out", step="connect", hint="try ssh")
    done = cli("doctor")
    assert done.exit_code == 4
    assert "h2: timed out" in done.stdout and "1 MiB" in done.stdout
    cli.hosts["h2"].verbs["doctor"] = Unreachable("the key is another", step="host key")
    found = json.loads(cli("doctor", "--limit", "h2", "-o", "json").stdout)["checks"]
    assert [c["fault"] for c in found] == ["ssh-host-key"]


def test_a_clock_that_differs_is_told_by_how_much(cli):
    answers(cli, "h1", check("os"), late=-90.0)
    done = cli("doctor", "--limit", "h1")
    assert done.exit_code == 0 and "90 s behind this machine" in done.stdout
    answers(cli, "h1", check("os"), late=3.0)
    assert "this machine" not in cli("doctor", "--limit", "h1").stdout


def test_a_wrong_description_is_found_and_the_host_is_still_looked_at(cli):
    cli.raw["hosts"]["h1"]["sglang_services"]["kimi"]["flags"]["tp-siz"] = 8
    answers(cli, "h1", check("os"))
    done = cli("doctor", "--limit", "h1")
    assert done.exit_code == 1 and "tp-siz" in done.stdout and "config validate" in done.stdout
    assert cli.hosts["h1"].calls[0].json["manifests"] == []


def test_hosts_without_a_service_are_looked_at_too(cli):
    cli.describes("h1")
    answers(cli, "h1", check("os"))
    assert cli("doctor", "--limit", "h1").exit_code == 0
    assert cli.hosts["h1"].calls[0].json["manifests"] == []
