"""The address book: what is cached, when it is stale, what is never written."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from opsctl.errors import NothingSelected, Refused
from opsctl.inventory import BookEntry, book_of, find, reader, select, typed
from opsctl.inventory import book as read_book
from opsctl.inventory.book import cacheable
from opsctl.inventory.locate import ansible_cfg, setting
from opsctl.inventory.model import Book

SECRET = "canary-8f2a"


def said(name, **more):
    return {
        "vars": {"ansible_host": "10.0.0.1", "ansible_ssh_common_args": "-F x"},
        "sglang_services": {
            "kimi": {"secrets": {"api-key": SECRET}, "env": {"TOKEN": SECRET}, "flags": {}}
        },
        "sglang_overrides": {},
        "groups": ["gpu"],
        **more,
    }


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An inventory folder, a cache folder of its own, and a count of readings by Ansible."""
    inventory = tmp_path / "inventory"
    (inventory / "group_vars").mkdir(parents=True)
    (inventory / "hosts.yml").write_text("all: {hosts: {h1: }}\n")
    (inventory / "group_vars" / "all.yml").write_text("x: 1\n")
    reads = []

    class Place:
        path = inventory
        cache = tmp_path / "cache" / "opsctl"

        def __init__(self):
            self.environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
            self.raw = {"hosts": {"h1": said("h1")}}

        def book(self, **options):
            return read_book(self.path, environ=self.environ, **options)

        @property
        def reads(self):
            return len(reads)

    here = Place()

    def document(path, limit=None):
        reads.append(path)
        return here.raw

    monkeypatch.setattr(sys.modules["opsctl.inventory.book"], "as_far", document)
    monkeypatch.chdir(tmp_path)
    return here


def test_the_second_time_ansible_is_not_asked(place):
    first, second = place.book(), place.book()
    assert place.reads == 1
    assert first == second
    assert second.hosts["h1"] == BookEntry(
        "h1", {"ansible_host": "10.0.0.1", "ansible_ssh_common_args": "-F x"}, ("gpu",), ("kimi",)
    )


def test_the_cache_holds_no_secret_and_is_ours_alone(place):
    place.book()
    (file,) = place.cache.iterdir()
    assert file.name.startswith("inventory-")
    assert SECRET not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.cache.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "touch",
    [
        lambda p: (p / "hosts.yml").write_text("all: {hosts: {h1: , h2: }}\n"),
        lambda p: os.utime(p / "group_vars" / "all.yml", ns=(1, 1)),
        lambda p: (p / "host_vars").mkdir() or (p / "host_vars" / "h1.yml").write_text("a: 1\n"),
        lambda p: (p / "group_vars" / "all.yml").unlink(),
        lambda p: (p.parent / "ansible.cfg").write_text("[defaults]\nremote_user = ann\n"),
    ],
    ids=["edited", "touched", "added", "removed", "settings"],
)
def test_any_change_of_a_file_is_noticed(place, touch):
    place.book()
    touch(place.path)
    place.book()
    assert place.reads == 2


def test_a_vault_password_file_counts_too(place):
    (place.path.parent / "ansible.cfg").write_text("[defaults]\nvault_password_file = vault.txt\n")
    (place.path.parent / "vault.txt").write_text("one")
    place.book()
    (place.path.parent / "vault.txt").write_text("two!")
    place.book()
    assert place.reads == 2


def test_variables_of_ansible_have_a_cache_of_their_own(place):
    place.book()
    place.environ = {**place.environ, "ANSIBLE_REMOTE_USER": "ann"}
    place.book()
    assert place.reads == 2


def test_no_cache_reads_anew(place):
    place.book()
    place.book(cache=False)
    assert place.reads == 2


def script(folder):
    file = folder / "dynamic.sh"
    file.write_text("#!/bin/sh\necho {}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    "make",
    [
        script,
        lambda p: (p / "cloud.yml").write_text("plugin: somewhere.cloud.hosts\n"),
        lambda p: (p / "group_vars" / "z.yml").write_text("a: \"{{ lookup('pipe', 'date') }}\"\n"),
    ],
    ids=["script", "plugin", "lookup"],
)
def test_what_may_differ_without_a_change_is_not_cached(place, make):
    make(place.path)
    place.book()
    place.book()
    assert place.reads == 2
    assert not place.cache.exists() or not list(place.cache.iterdir())


@pytest.mark.parametrize(
    ("variables", "kept"),
    [
        ({"ansible_host": "h"}, True),
        ({"ansible_password": SECRET}, False),
        ({"ansible_become_pass": SECRET}, False),
        ({"ansible_become_password": SECRET}, False),
        ({"ansible_ssh_pass": SECRET}, False),
        ({"ansible_ssh_private_key_passphrase": SECRET}, False),
        ({"ansible_become_password": None}, True),
        ({"ansible_ssh_common_args": f"-o ProxyCommand='sshpass -p {SECRET} ssh j'"}, False),
    ],
)
def test_a_connection_that_needs_a_password_is_not_cached(variables, kept):
    assert cacheable(Book(Path("x"), {"h": BookEntry("h", variables)})) is kept


def test_a_password_that_came_later_takes_the_cache_away(place):
    place.book()
    place.raw = {"hosts": {"h1": said("h1", vars={"ansible_become_password": SECRET})}}
    (place.path / "hosts.yml").write_text("other: text\n")
    place.book()
    assert not list(place.cache.iterdir())


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"files": 1}', '{"files": [], "hosts": {"h": 1}}']
)
def test_a_broken_cache_is_no_error(place, text):
    place.book()
    (file,) = place.cache.iterdir()
    file.write_text(text)
    assert "h1" in place.book().hosts
    assert place.reads == 2


def test_a_cache_that_others_may_write_is_not_trusted(place):
    place.book()
    (file,) = place.cache.iterdir()
    held = json.loads(file.read_text())
    held["hosts"]["h1"]["connection"]["ansible_host"] = "6.6.6.6"
    file.write_text(json.dumps(held))
    file.chmod(0o666)
    assert place.book().hosts["h1"].connection["ansible_host"] == "10.0.0.1"


def test_a_cache_that_cannot_be_written_is_no_error(place):
    place.environ = {"XDG_CACHE_HOME": "/proc/nowhere"}
    assert "h1" in place.book().hosts


def test_names_of_services_are_those_after_the_merge(tmp_path):
    raw = {
        "hosts": {
            "h1": said("h1", sglang_overrides={"kimi": None}),
            "h2": said("h2", sglang_overrides={"own": {"model": {}, "engine": {}}}),
            "h3": said("h3", sglang_services="oops"),
        }
    }
    book = book_of(tmp_path, raw)
    assert [entry.services for entry in book.hosts.values()] == [(), ("kimi", "own"), ()]


# ---------------------------------------------------------------- where it is
def test_where_the_inventory_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("inventory", "given", "named", "configured"):
        (tmp_path / name).mkdir()
    none: dict = {"ANSIBLE_CONFIG": str(tmp_path / "none.cfg")}
    assert find(None, none) == tmp_path / "inventory"
    (tmp_path / "a.cfg").write_text("[defaults]\ninventory = configured ; here\n")
    config = {"ANSIBLE_CONFIG": str(tmp_path / "a.cfg")}
    assert find(None, config) == tmp_path / "configured"
    named = {**config, "OPSCTL_INVENTORY": "named"}
    assert find(None, named) == tmp_path / "named"
    assert find(Path("given"), named) == tmp_path / "given"


@pytest.mark.parametrize(
    ("given", "environ", "source"),
    [
        (Path("nope"), {}, "given with -i"),
        (None, {"OPSCTL_INVENTORY": "nope"}, "from $OPSCTL_INVENTORY"),
        (None, {"ANSIBLE_CONFIG": "/none"}, "the default"),
    ],
)
def test_an_inventory_that_is_not_there(tmp_path, monkeypatch, given, environ, source):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused, match="no inventory at") as caught:
        find(given, {"ANSIBLE_CONFIG": "/none", **environ})
    assert source in caught.value.message
    assert caught.value.exit_code == 2


def test_settings_that_cannot_be_read_are_left_to_ansible(tmp_path):
    broken = tmp_path / "ansible.cfg"
    broken.write_text("inventory = x\n")
    assert setting(broken, "inventory") == ""
    assert ansible_cfg({"ANSIBLE_CONFIG": str(tmp_path)}) == broken


# ---------------------------------------------------------------- what is meant
FLEET = Book(
    Path("inv"),
    {
        "h1": BookEntry("h1", {}, ("gpu", "old"), ("kimi", "glm")),
        "h2": BookEntry("h2", {}, ("gpu",), ("kimi",)),
        "bare": BookEntry("bare", {}, (), ()),
    },
)


@pytest.mark.parametrize(
    ("services", "limit", "bare", "chosen", "wide"),
    [
        ((), (), False, {"h1": ("kimi", "glm"), "h2": ("kimi",)}, True),
        ((), (), True, {"h1": ("kimi", "glm"), "h2": ("kimi",), "bare": ()}, True),
        (("glm",), (), False, {"h1": ("glm",)}, True),
        ((), ("h2",), False, {"h2": ("kimi",)}, False),
        ((), ("gpu",), False, {"h1": ("kimi", "glm"), "h2": ("kimi",)}, True),
        ((), ("old", "h2"), False, {"h1": ("kimi", "glm"), "h2": ("kimi",)}, True),
        ((), ("h2", "h1"), False, {"h1": ("kimi", "glm"), "h2": ("kimi",)}, False),
        ((), ("all",), True, {"h1": ("kimi", "glm"), "h2": ("kimi",), "bare": ()}, True),
        # patterns, as Ansible takes them; hosts that a pattern chose were not named
        ((), ("h*",), False, {"h1": ("kimi", "glm"), "h2": ("kimi",)}, True),
        ((), ("h*", "!h1"), False, {"h2": ("kimi",)}, True),
        ((), ("!h1", "h*"), False, {"h2": ("kimi",)}, True),
        ((), ("!h1",), False, {"h2": ("kimi",)}, True),
        ((), ("!old",), True, {"h2": ("kimi",), "bare": ()}, True),
        ((), ("gpu", "&old"), False, {"h1": ("kimi", "glm")}, True),
        ((), ("g?u", "!o*"), False, {"h2": ("kimi",)}, True),
        ((), ("h[2-9]",), False, {"h2": ("kimi",)}, True),
    ],
)
def test_selections(services, limit, bare, chosen, wide):
    got = select(FLEET, services, limit, bare=bare)
    assert got.by_host == chosen
    assert got.fleet_wide is wide


@pytest.mark.parametrize(
    ("services", "limit", "words"),
    [
        (("kimmi",), (), "no service kimmi in inv; did you mean kimi?; there is: glm, kimi"),
        ((), ("h9",), "no host or group h9 in inv"),
        ((), ("x*",), "no host or group x* in inv"),
        ((), ("h*", "!h9"), "no host or group h9 in inv"),
        ((), ("h1", "!gpu"), "--limit h1,!gpu leaves no host of inv; there is: h1, h2, bare"),
        (("glm",), ("h2",), "service glm on h2 is not described"),
        ((), ("bare",), "any service on bare is not described in inv; there is: h1 (kimi, glm)"),
    ],
)
def test_an_empty_selection_is_an_error(services, limit, words):
    with pytest.raises(NothingSelected) as caught:
        select(FLEET, services, limit)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("h[1:5]", "--limit h1,h2"),  # as a glob: the characters 1, : and 5
        ("!h[0:1]", "--limit h1"),
        ("gpu[0:2]", "--limit h1,h2"),
        ("h[01:02:1]", "--limit h1,h2"),
        ("h[:]", "a group of them"),
    ],
)
def test_a_range_is_refused_with_what_to_type(part, words):
    with pytest.raises(Refused) as caught:
        select(FLEET, (), (part,))
    assert part.removeprefix("!") in caught.value.message
    assert words in caught.value.hint


@pytest.mark.parametrize(
    ("services", "limit", "chosen"),
    [
        (("old",), ("bare",), {"bare": ("old",)}),
        (("glm", "glm"), ("h2", "h1"), {"h1": ("glm",), "h2": ("glm",)}),  # not described on h2
        (("glm",), ("gpu",), {"h1": ("glm",)}),  # no host was named: what is described
        (("glm",), (), {"h1": ("glm",)}),
        ((), ("h2",), {"h2": ("kimi",)}),
    ],
)
def test_what_is_not_described_is_chosen_where_every_host_is_named(services, limit, chosen):
    assert select(FLEET, services, limit, undescribed=True).by_host == chosen


@pytest.mark.parametrize(
    ("services", "limit"), [(("old",), ()), (("old",), ("gpu",)), (("-x/../y",), ("h1",))]
)
def test_what_is_not_described_is_not_chosen_elsewhere(services, limit):
    with pytest.raises(NothingSelected, match="there is no service") as caught:
        select(FLEET, services, limit, undescribed=True)
    assert "--limit HOST" in str(caught.value.hint)


def test_an_empty_inventory_is_an_empty_selection():
    with pytest.raises(NothingSelected, match="no host at all"):
        select(Book(Path("inv"), {}), bare=True)


def test_a_typed_password_goes_to_ansible_and_to_no_cache(place, monkeypatch, tmp_path):
    monkeypatch.setattr(typed, "_typed", [])
    place.book()
    place.book()
    assert place.reads == 1 and typed.environment(tmp_path) == {}
    typed.keep(SECRET)
    place.book()
    assert place.reads == 2
    file = Path(typed.environment(tmp_path)[typed.FILE])
    assert (file.read_text(), file.stat().st_mode & 0o777) == (SECRET, 0o600)
    assert not list(place.cache.iterdir())


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("[ERROR]: Attempting to decrypt but no vault secrets found.", "VAULT_PASSWORD_FILE"),
        ("[ERROR]: Decryption failed (no vault secrets were found", "VAULT_PASSWORD_FILE"),
        ("[ERROR]: no such plugin", "ansible-inventory -i /inv --list"),
    ],
)
def test_a_vault_without_its_password_says_what_to_set(line, word):
    assert word in reader._hint(["PLAY [x]", line], Path("/inv"))
