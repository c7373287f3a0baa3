"""Services that stand on a host and in no description: they are seen, and can be removed."""

import json

import pytest

from opsctl.remote.host import Answer
from opsctl.views.undescribed import by_hand

FOREIGN = {"release": {"running": "0"}, "manifest": None, "health": "unknown", "start": {}}


def test_a_service_that_was_renamed_in_the_inventory_is_still_seen(cli):
    cli.describes("h2", "kimi2")
    cli.has("h2", kimi={})
    done = cli("status", "-o", "json")
    document = json.loads(done.stdout)
    assert document["ok"] is False
    old, new = document["hosts"][1]["services"]
    assert (old["service"], old["state"], old["release"]) == ("kimi", "active", "3f9a" * 16)
    assert old["checks"][-1] == {
        "id": "described",
        "status": "fail",
        "detail": "not described in the inventory: `opsctl remove kimi --limit h2`",
    }
    assert set(old) == set(document["hosts"][0]["services"][0]), "the schema is the same"
    assert (new["service"], new["state"]) == ("kimi2", "absent")
    told = document["hosts"][0]["services"][0]["checks"]
    assert "described" not in [check["id"] for check in told]
    text = " ".join(cli("status").stdout.split())
    assert "not described in the inventory: `opsctl remove kimi --limit h2`" in text
    assert "not described" not in cli("status", "kimi2").stdout
    shown = " ".join(cli("hosts").stdout.split())
    assert "kimi (active, not described), kimi2 (absent)" in shown


def test_a_service_that_was_dropped_from_the_inventory_is_still_seen(cli):
    cli.describes("h2")
    assert "kimi (active, not described)" in cli("hosts").stdout
    assert "opsctl remove kimi --limit h2" in cli("status", "--limit", "h2").stdout


def test_a_unit_of_other_hands_is_named_and_fails_nothing(cli):
    cli.has("h1", kimi={}, router=FOREIGN)
    document = json.loads(cli("status", "-o", "json").stdout)
    assert document["ok"] is True
    assert document["hosts"][0]["services"][1]["checks"][-1]["status"] == "inconclusive"
    text = cli("status").stdout
    assert "not by opsctl" in text.splitlines()[2].rsplit("  ", 1)[-1]
    assert "opsctl remove" not in text
    assert "router (active, not by opsctl)" in cli("hosts").stdout


def test_a_unit_of_ours_that_was_edited_is_ours(cli):
    cli.has("h1", kimi={}, old={"release": {"running": "0", "edited": True}})
    assert "opsctl remove old --limit h1" in cli("status").stdout


# -- remove


def removable(cli, *names):
    for name in names:
        cli.hosts[name].verbs |= {"lock": {}, "unlock": {}, "remove": {}}


def removed(cli, name):
    return [call.args[0] for call in cli.hosts[name].said("remove")]


def leftovers(cli, name, service, there):
    cli.hosts[name].commands["test", "-e", f"/etc/opsctl/{service}"] = Answer(not there, "")


@pytest.mark.parametrize("described", [(), ("kimi2",)])
def test_what_is_not_described_is_removed_where_the_host_is_named(cli, described):
    cli.describes("h2", *described)
    cli.has("h2", kimi={})
    removable(cli, "h1", "h2")
    done = cli("remove", "kimi", "--limit", "h2", "--yes")
    assert done.exit_code == 0, done.output
    assert "h2 kimi: remove: is active" in done.stderr
    assert removed(cli, "h2") == ["kimi"]
    assert cli.hosts["h1"].calls == []


@pytest.mark.parametrize("limit", [(), ("--limit", "gpu"), ("--limit", "h2,gpu")])
def test_what_is_not_described_needs_the_host_by_name(cli, limit):
    cli.has("h2", old={})
    done = cli("remove", "old", *limit, "--yes")
    assert done.exit_code == 2
    assert "there is no service old" in done.stderr
    assert "name the host: opsctl remove old --limit HOST" in done.stderr
    assert cli.hosts["h2"].calls == []


def test_a_typing_mistake_is_no_removal(cli):
    cli.has("h2", kimi={})
    removable(cli, "h2")
    leftovers(cli, "h2", "kimmi", there=False)
    done = cli("remove", "kimi", "kimmi", "--limit", "h2", "--yes")
    assert done.exit_code == 2
    assert "no service kimmi: neither described for, nor on, h2" in done.stderr
    assert removed(cli, "h2") == []
    done = cli("remove", "--yes", "--limit", "h2", "--", "-x/../y")
    assert done.exit_code == 2 and "there is no service -x/../y" in done.stderr


@pytest.mark.parametrize("service", ["kimi2", "old"])
def test_what_a_refused_first_deployment_left_is_removed(cli, service):
    """kimi2 is described (now), old is not."""
    cli.describes("h2", "kimi2")
    cli.has("h2")
    removable(cli, "h2")
    leftovers(cli, "h2", service, there=True)
    done = cli("remove", service, "--limit", "h2", "--yes")
    assert done.exit_code == 0, done.output
    assert f"no unit, but files in /etc/opsctl/{service}" in done.stderr
    assert removed(cli, "h2") == [service]


def test_what_is_described_and_not_there_is_no_error(cli):
    cli.has("h1")
    removable(cli, "h1", "h2")
    leftovers(cli, "h1", "kimi", there=False)
    done = cli("remove", "kimi", "--yes")
    assert done.exit_code == 0, done.output
    assert "h1 kimi: no change: is not there" in done.stderr
    assert (removed(cli, "h1"), removed(cli, "h2")) == ([], ["kimi"])


def test_a_unit_of_other_hands_is_not_removed(cli):
    cli.has("h1", kimi={}, router=FOREIGN)
    removable(cli, "h1")
    done = cli("remove", "kimi", "router", "--limit", "h1", "--yes")
    assert done.exit_code == 2
    assert "h1: sglang-router.service was not written by opsctl" in done.stderr
    assert "systemctl disable --now sglang-router.service" in done.stderr
    assert removed(cli, "h1") == []


def test_what_takes_release_0_off_its_host_is_named():
    unit, folder = "sglang-kimi.service", "/etc/systemd/system/sglang-kimi.service.d"
    service = {"service": "kimi", "unit": unit, "dropins": [f"{folder}/10-limits.conf"]}
    own = by_hand({**service, "release": {"zero": {"moved_from": None}}})
    assert f"rm /etc/systemd/system/{unit}; rm -r {folder}; systemctl daemon-reload; " in own
    assert "rm -r /etc/opsctl/kimi" in own and "enable --now" not in own
    moved = by_hand({**service, "dropins": [], "release": {"zero": {"moved_from": "llm.service"}}})
    assert folder not in moved and moved.endswith("systemctl enable --now llm.service")
    assert "/etc/opsctl" not in by_hand({**service, "release": {"zero": None}})
