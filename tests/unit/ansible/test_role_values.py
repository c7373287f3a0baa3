"""What the roles' variables may be, beyond what an argument spec can say."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

from opsctl.ansible import modelfolders, rolespec, rolevalues, rolevars
from opsctl.ansible.nvidia_driver import with_key
from opsctl.ansible.target import host
from opsctl.ansible.target.converge import Refused
from opsctl.ansible.target.repository import key_of
from opsctl.paths import share

ROLES = [path for path in sorted((share() / "roles").iterdir()) if path.is_dir()]
SPECS = {
    key
    for role in ROLES
    for key in yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"][
        "main"
    ]["options"]
}
DEFAULTS = {
    key: value
    for role in ROLES
    for key, value in yaml.safe_load((role / "defaults" / "main.yml").read_text()).items()
}


def test_every_check_is_of_a_variable_that_there_is() -> None:
    assert set(rolevalues.CHECKS) <= SPECS
    assert set(rolevalues.FILLED) <= SPECS


def test_the_defaults_are_right() -> None:
    assert {key: said for key, v in DEFAULTS.items() if (said := rolevalues.wrong(key, v))} == {}
    assert of_one_host({**DEFAULTS, "cuda_repository": {}}) == []  # it is a template
    assert rolevalues.contradictions(DEFAULTS) == []


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("host_tuning_swapiness", "host_tuning_swappiness"),
        ("host_tunning_swappiness", "host_tuning_swappiness"),
        ("nvidia_driver_brnch", "nvidia_driver_branch"),
        ("nvidia_drivr_branch", "nvidia_driver_branch"),
        ("host_openfiles", "host_open_files"),
        ("sglang_service", "sglang_services"),
        ("sglang_overides", "sglang_overrides"),
        ("cuda_toolkit", "cuda_toolkits"),
        ("opsctl_cannary", "opsctl_canary"),
        ("cuda_defualt", "cuda_default"),
        ("opsctl_reasons", "opsctl_reason"),
        ("host_tuning_of_my_own", ""),
    ],
)
def test_a_misspelt_variable_is_told_with_the_nearest_name(name: str, near: str) -> None:
    said = rolevalues.stranger(name, SPECS)
    assert said is not None
    assert said[1].startswith(f"did you mean {near}? " if near else "A variable of your own needs")


@pytest.mark.parametrize(
    "name",
    [
        *sorted(SPECS),
        *("opsctl_canary", "opsctl_reason", "opsctl_described", "opsctl_surveyed"),
        *("host_rack", "host_role", "host_name", "model_root", "model_folder", "model_path"),
        *("engine_version", "service_port", "sglang_version", "sglang_port", "sglang_models"),
        *("cuda_home", "cuda_version", "cuda_visible_devices", "opsctl_x", "opsctl_inventory"),
        *("ansible_host", "groups", "inventory_hostname", "ratio", "rack"),
    ],
)
def test_variables_of_the_owners_own_are_let_be(name: str) -> None:
    assert rolevalues.stranger(name, SPECS) is None


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        ("host_tuning_memlock", ["", "unlimited", 0, "65536"], ["infinite", -1, "64G", True, 1.5]),
        ("host_tuning_nofile", ["", 1048576, "65536"], [99999999999, -1, 0, "many", "unlimited"]),
        ("host_tuning_swappiness", ["", 0, "10", 200], [-5, "ten", 201, True, "1.5"]),
        ("host_tuning_huge_pages", ["", 0, 512], [-1, "2MiB"]),
        ("host_tuning_shm_size", ["", "64GiB", "64G", 1 << 30], ["64 gigs", 64, "-1G", "64GB"]),
        (
            "host_tuning_sysctl",
            [
                {},
                {"vm.x": 1, "a.b": "1 2"},
                {"vm/lowmem_reserve_ratio": "256 256 32", "fs.nr_open": "1048576"},
                {"kernel.core_pattern": "|/bin/x %p", "net.ipv4.conf.eth0/100.forwarding": 1},
            ],
            [
                {"vm.x": None},
                {"vm.x": [1]},
                {"vm.max_map_count": "lots"},
                {"fs/file-max": "1M"},
                {"kernel/x y": 1},
                {"swappiness": 1},
                {"kernel.x": "1\nkernel.y = 2"},
            ],
        ),
        ("host_open_files", [1048576, "65536"], [-1, 0, 99999999999]),
        ("host_journal_max_use", ["", "4G", "512M"], ["4 gigs", "4GB", 4, "-4G", "4.5G"]),
        (
            "host_folders",
            [{"/etc/opsctl": "0755", "/a": "750"}, {}],
            [{"/etc/opsctl": "999"}, {"/etc/opsctl": 493}, {"etc": "0755"}, {"/a/../b": "0755"}],
        ),
        ("host_users", [["sglang"], []], [["Sg lang"], ["0x"]]),
        ("nvidia_driver_branch", ["", 580, "580"], ["latest", "580-open", 58]),
        ("nvidia_driver_version", ["", "580.95.05"], ["580", "newest", "580.95.05-1", 580.95]),
        ("nvidia_driver_reboot_timeout", [1200, "60"], [0, -1]),
        ("cuda_toolkits", [["13.0", "12.9"], []], [["13"], ["latest"], [13], [13.0, 12.10]]),
        ("cuda_default", ["", "13.0"], ["13", "newest", 12.9]),
        ("engine_python", ["python3", "/usr/bin/python3.12"], ["python3 -u"]),
    ],
)
def test_values(key: str, right: list[object], wrong: list[object]) -> None:
    assert [value for value in right if rolevalues.wrong(key, value)] == []
    assert [value for value in wrong if not rolevalues.wrong(key, value)] == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"nvidia_driver_version": "580.95.05"}, "without nvidia_driver_branch"),
        (
            {"nvidia_driver_version": "580.95.05", "nvidia_driver_branch": 570},
            "not of nvidia_driver_branch 570",
        ),
        ({"cuda_default": "13.0"}, "cuda_toolkits is empty"),
        ({"cuda_default": 13.0, "cuda_toolkits": ["12.9"]}, "cuda_toolkits has 12.9"),
    ],
)
def test_what_says_nothing_together_is_told(values: dict[str, object], words: str) -> None:
    assert words in rolevalues.contradictions(values)[0][1]


# A primary key of version 4 and nothing else: all that a fingerprint is made of.
KEY_B64 = "mDMEZVPxARYJKwYBBAHaRw8BAQdAAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
FOLDER = {"path": "/srv/m", "source": {"hub": "o/m", "endpoint": "http://h"}}


def of_one_host(values: dict[str, Any]) -> list[tuple[str, str]]:
    """(key, message) of what `config validate` tells of one host's variables."""
    specs = rolespec.options(DataLoader())
    return [(key, message) for key, message, _ in rolevars._wrong(values, specs)]


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the controller, where relative paths start."""
    (tmp_path / "good.gpg").write_bytes(base64.b64decode(KEY_B64))
    (tmp_path / "page.html").write_text("<html>404</html>")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("repository", "part", "words"),
    [
        (None, "key", "is not given"),
        ({}, "key", "is not given"),
        ({"key": "gone.asc"}, "key", "cannot be read: No such file"),
        ({"key": "page.html"}, "key", "page.html holds no OpenPGP public key"),
        ({"key": "good.gpg", "fingerprint": "AB" * 20}, "key", "has fingerprint"),
        ({"key": "good.gpg", "fingerprint": "zz"}, "fingerprint", "40 hex digits"),
        ({"key": "https://m/k.asc"}, "key", "is an address: give the key's fingerprint"),
        ({"key": "good.gpg", "url": "gopher://m/x"}, "url", "begins with http://"),
        ({"key": "good.gpg", "url": "mirror.lan/x"}, "url", "begins with http://"),
        ({"key": "good.gpg", "url": "https:///x"}, "url", "begins with http://"),
        ({"key": "good.gpg"}, "", ""),
        ({"key": "good.gpg", "url": "http://m/x"}, "", ""),
        ({"key": "good.gpg", "url": "file:///srv/mirror"}, "", ""),
        ({"key": "https://m/k.asc", "fingerprint": " ".join(["abab"] * 10)}, "", ""),
    ],
)
@pytest.mark.parametrize(
    ("asks", "variable"),
    [
        ({"nvidia_driver_branch": "580"}, "nvidia_driver_repository"),
        ({"cuda_toolkits": ["13.0"]}, "cuda_repository"),
    ],
)
@pytest.mark.usefixtures("keys")
def test_a_repository_is_judged_before_any_host_is_asked_and_as_hosts_do(
    repository: dict[str, str] | None, part: str, words: str, asks: dict[str, Any], variable: str
) -> None:
    values = asks if repository is None else {**asks, variable: repository}
    found = of_one_host(values)
    assert bool(found) == bool(part)
    if not part:
        return
    (key, message), *more = found
    named = variable if repository is not None else "nvidia_driver_repository"
    assert (key, more) == (f"{named}.{part}", []) and words in message
    # What is given is judged though nothing is asked of it; what is missing is missed then only.
    assert bool(of_one_host({named: repository or {}})) is (part in (repository or {}))
    if "cannot be read" not in words:
        with pytest.raises(Refused) as raised:
            key_of(with_key(repository or {}, named), "http://default/")
        assert str(raised.value).startswith(f"{named}.{part} ") and words in str(raised.value)


@pytest.mark.parametrize(
    ("values", "key", "words"),
    [
        (
            {"host_tuning_swappiness": "10", "host_tuning_sysctl": {"vm.swappiness": 60}},
            "host_tuning_sysctl",
            "sets vm.swappiness, which a variable of its own sets too",
        ),
        (
            {
                "host_tuning_numa_balancing": "no",
                "host_tuning_sysctl": {"kernel/numa_balancing": 1},
            },
            "host_tuning_sysctl",
            "sets kernel.numa_balancing",
        ),
        (
            {"host_tuning_nofile": 2000000, "host_tuning_sysctl": {"fs.nr_open": "1048576"}},
            "host_tuning_nofile",
            "the kernel allows 1048576",
        ),
        (
            {"host_tuning_nofile": 2000000, "host_tuning_sysctl": {"fs.nr_open": "many"}},
            "host_tuning_sysctl",
            "must give fs.nr_open a whole number",
        ),
        ({"model_folders": [FOLDER]}, "model_folders", "hub needs endpoint, and revision"),
        ({"model_folders": [{"path": "srv"}]}, "model_folders", "entry 1, srv: path: "),
        ({"model_folders": [{"size": 1}]}, "model_folders", "path"),
    ],
)
def test_what_a_role_would_refuse_later_is_told_first(
    values: dict[str, Any], key: str, words: str
) -> None:
    ((named, message),) = of_one_host(values)
    assert named == key and words in message


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "nvidia_driver_repository",
            "http://x/",
            "must be a mapping (key: value): 'http://x/' is not",
        ),
        ("nvidia_driver_hold", "maybe", "must be yes or no: 'maybe' is not"),
        ("host_open_files", "many", "must be a whole number: 'many' is not"),
        ("host_users", {"a": 1}, "must be a list"),
        ("host_folders", ["x"], "must be a mapping (key: value)"),
        (
            "nvidia_driver_repository",
            {"urll": "http://x"},
            "there is no nvidia_driver_repository.urll: there is fingerprint, key, url",
        ),
        (
            "engine_environments",
            [{"version": "1", "root": "/a", "cuda": "perhaps"}],
            "engine_environments.cuda must be yes or no",
        ),
        (
            "nvidia_driver_fabric_manager",
            "sometimes",
            "must be one of auto, yes, no: 'sometimes' is not",
        ),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_once_and_in_plain_words(
    key: str, value: object, said: str
) -> None:
    assert of_one_host({key: value}) == [(key, said)]


ODD: list[Any] = [None, "", True, False, "on", "maybe", 0, 7, -1, 1.5, "7", "13.0", [], ["13"],
                  {}, {"a": 1}, [None], [True], ["on", {}]]  # fmt: skip
KINDS = {"str": str, "int": int, "bool": bool, "list": list, "dict": dict}
OF_ANSIBLE = ("argument '", "unable to convert", "sub parameter", "requested", "got:", ": ,", "of:")


@pytest.mark.parametrize("key", sorted(SPECS - {"sglang_services", "sglang_overrides"}))
def test_whatever_is_written_is_taken_as_its_kind_or_refused_in_words_that_show_it(
    key: str,
) -> None:
    loader = DataLoader()
    spec = rolespec.options(loader)[key]
    for value in ODD:
        said = list(rolevars._wrong({key: value}, {key: spec}))
        text = " ".join(f"{message} {shown}" for _, message, shown in said)
        assert [words for words in OF_ANSIBLE if words in text] == [], (value, text)
        if not said or said[0][0] != key:  # right for itself: what belongs to it is not there
            taken = rolespec.converted({key: value}, loader)[key]
            assert isinstance(taken, KINDS[spec["type"]]) or "default" not in spec, value
        elif value is None:
            assert "leave it out" in text
        elif not isinstance(value, list | dict):
            assert repr(value) in text and len(said) == 1


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (
            "cuda_toolkits",
            ["13", "12.9", "cuda-12.9"],
            [("must be versions like 13.0, quoted", "'13', 'cuda-12.9'")],
        ),
        (
            "cuda_toolkits",
            [12.1, "13"],
            [
                (
                    "must be versions like 13.0, quoted: without quotes YAML reads a number, and "
                    "12.10 becomes 12.1",
                    "12.1",
                ),
                ("must be versions like 13.0, quoted", "'13'"),
            ],
        ),
        ("cuda_toolkits", "", [("must be a list: '' is not", "")]),
        ("cuda_toolkits", [""], [("must be versions like 13.0, quoted", "''")]),
        (
            "host_tuning_transparent_huge_pages",
            True,
            [
                (
                    'must be one of always, madvise, never, or "" to leave it alone: True is not '
                    "(what YAML makes of on, yes or true without quotes)",
                    "",
                )
            ],
        ),
        (
            "host_tuning_numa_balancing",
            2,
            [('must be yes or no, or "" to leave it alone: 2 is not', "")],
        ),
        (
            "host_folders",
            {"/etc/opsctl": 493},
            [
                (
                    'must give /etc/opsctl its mode as quoted octal digits, like "0755": 493 is '
                    "none",
                    "",
                )
            ],
        ),
        (
            "nvidia_driver_hold",
            None,
            [("is given nothing: leave it out for its default, true", "")],
        ),
        ("nvidia_driver_repository", True, [("must be a mapping (key: value): True is not", "")]),
        ("nvidia_driver_repository", ["http://a:pw@m/"], [("must be a mapping (key: value)", "")]),
        (
            "model_folders",
            ["/srv/m"],
            [("must be a list of mappings (key: value): '/srv/m' is not", "")],
        ),
        ("engine_python", "", [("must be a program like python3.12", "''")]),
        ("engine_python", True, [("must be a program like python3.12", "True")]),
    ],
)
def test_what_is_wrong_is_shown_with_what_may_be_written(
    key: str, value: Any, told: list[tuple[str, str]]
) -> None:
    specs = rolespec.options(DataLoader())
    found = list(rolevars._wrong({key: value}, specs))
    assert found == [(key, message, shown) for message, shown in told]


def test_a_mistake_elsewhere_hides_none_of_a_repository() -> None:
    values = {"nvidia_driver_repository": {"url": "ftp://x"}, "host_open_files": "many"}
    assert [key for key, _ in of_one_host(values)] == [
        "host_open_files",
        "nvidia_driver_repository.url",
    ]


@pytest.mark.parametrize("name", ["host_users", "engine_environments", "model_folders"])
def test_what_the_playbook_fills_in_itself_is_not_dropped_without_a_word(name: str) -> None:
    class Hosts:
        def raw_get(self, host: str) -> dict[str, Any]:
            return {name: ["root"], "host_open_files": 2048}

    (told,) = rolevars.strangers(["h1"], Hosts(), SPECS)
    assert (told.host, told.key) == ("h1", name)
    assert "what the inventory says is dropped" in told.message and "take it out" in told.hint


def test_what_roles_take_is_right() -> None:
    source = {"hub": "o/m", "endpoint": "http://h", "revision": "a" * 40, "limit": "10MiB"}
    folders = [{"path": "/srv/m", "size": 1, "what": "model", "source": source}, {"path": "/a"}]
    settings = {"host_tuning_swappiness": "", "host_tuning_sysctl": {"vm.swappiness": 60}}
    assert of_one_host({"model_folders": folders, **settings}) == []
    first, second = modelfolders.read(folders)
    assert first["source"]["limit"] == 10 << 20 and first["size"] == 1
    assert second == {"path": "/a", "source": None}


def test_what_belongs_together_is_right() -> None:
    driver = {"nvidia_driver_version": "580.95.05", "nvidia_driver_branch": 580}
    assert rolevalues.contradictions(driver) == []
    assert rolevalues.contradictions({"cuda_default": "13.0", "cuda_toolkits": ["13.0"]}) == []


@pytest.mark.parametrize("mode", ["999", "rwx", 493, None])
def test_the_program_of_the_role_host_refuses_a_mode_before_it_makes_a_user(mode: object) -> None:
    args = {"users": ["sglang"], "folders": {"/etc/opsctl": mode}, "nofile": 1024}
    found = host.main(args | {"journal_max_use": "", "check": True})
    assert found["problems"] == [
        f'host_folders: {mode!r} is no mode of /etc/opsctl: quoted octal digits, like "0755"'
    ]
    assert found["diff"] == []
