"""Descriptions that are right, and the words for those that are not."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from opsctl.errors import SpecError
from opsctl.spec import check, load, show, validate
from opsctl.spec.kinds import secret_name

GOOD: dict[str, Any] = {
    "model": {"path": "/srv/models/K", "served_name": "k"},
    "engine": {"version": "0.5.9"},
    "flags": {"tensor-parallel-size": 2, "hicache-ratio": "4", "trust-remote-code": False},
}


def with_(**parts: Any) -> dict[str, Any]:
    return {**deepcopy(GOOD), **parts}


def said(services: Any, overrides: Any = None, login: str = "") -> list[str]:
    return [str(p) for p in check(services, overrides or {}, login=login)[1]]


def test_flags_come_back_typed_by_canonical_name() -> None:
    services, problems = check({"k": GOOD}, {})
    assert problems == []
    assert services["k"].flags == {"hicache-ratio": 4.0, "tp-size": 2}
    assert services["k"].port == 30000


def test_an_override_changes_one_value_and_null_deletes() -> None:
    changes = {"k": {"flags": {"hicache-ratio": 3, "trust-remote-code": None}, "gpus": [4, 5]}}
    services, problems = check({"k": with_(user="s", env={"A": "1"})}, changes)
    assert problems == []
    assert services["k"].flags == {"hicache-ratio": 3.0, "tp-size": 2}
    assert services["k"].gpus == (4, 5)
    assert services["k"].user == "s"
    assert check({"k": GOOD}, {"k": None}) == ({}, [])


def test_names_of_secrets_and_of_tokens_of_a_text() -> None:
    """A name that no variable can have is judged, too, and is no secret for that."""
    secret = ("HF_TOKEN", "hf_token", "A_PASSWORD", "X_API_KEY", "2_TOKEN", "a b_SECRET")
    public = ("SGLANG_USE_AITER_FP8_PER_TOKEN", "EOS_TOKEN", "MAX_TOKENS", "2A", "a b", "")
    assert all(map(secret_name, secret)) and not any(map(secret_name, public))
    env = {"SGLANG_USE_AITER_FP8_PER_TOKEN": "1"}
    assert check({"k": {**GOOD, "env": env}}, {})[1] == []


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"modle": 1}, ["key modle: is not a key", "allowed: model, engine", "did you mean model?"]),
    ({"tp-size": 8}, ["write it under flags, as tp-size"]),
    ({"api_key": "CANARY-1"}, ["write it as secrets.api-key"]),
    ({"secrets": {"apikey": "CANARY-1"}}, ["key secrets.apikey", "did you mean api-key?"]),
    ({"secrets": "CANARY-1"}, ["key secrets: must be a mapping"]),
    ({"secrets": {"api-key": ["CANARY-1"]}}, ["key secrets.api-key: must be text"]),
    ({"secrets": {"env": {"A B": "CANARY-1"}}}, ["is not a name of a variable"]),
    ({"env": {"HF_TOKEN": "CANARY-1"}}, ["write it in secrets.env"]),
    ({"env": {"A": 1}}, ['key env.A: must be text (value: 1); quote it: "1"']),
    ({"env": {"A": True}}, ['quote it: "true"']),
    ({"env": {"A": "1"}, "secrets": {"env": {"A": "CANARY-1"}}}, ["A is set in env and in"]),
    ({"gpus": [0], "env": {"CUDA_VISIBLE_DEVICES": "0"}}, ["keep one of the two"]),
    ({"gpus": [0, 0]}, ["names a GPU twice"]),
    ({"gpus": []}, ["at least one GPU"]),
    ({"gpus": [0]}, ["1 GPU is too few", "2 ranks", "take 2"]),
    ({"port": 0}, ["key port: is out of range (value: 0)"]),
    ({"host": "a b"}, ["IP address or a host name"]),
    ({"user": "root"}, ["not root"]),
    ({"user": "a b"}, ["is not a user name"]),
    ({"memory": {"min_available": "32 gigs"}}, ["32GiB (2^30) or 40GB (10^9)"]),
    ({"memory": {"min_available": 32}}, ["key memory.min_available", "did you mean 32GiB?"]),
    ({"memory": {"min_available": "0.5"}}, ["key memory.min_available", "did you mean 0.5GiB?"]),
    ({"model": {"path": "/m", "size": "540"}}, ["key model.size", "did you mean 540GiB?"]),
    ({"memory": {"min_available": "500kB"}}, ["less than 1 MiB is never meant; write for"]),
    ({"memory": {"swap": "forbit"}}, ["allowed: forbid, allow", "did you mean forbid?"]),
    ({"timing": {"drain": "1 fortnight"}}, ["90s, 15min, 2h"]),
    ({"timing": {"drain": -1}}, ["out of range"]),
    ({"model": {"path": "K"}}, ["key model.path: must be an absolute path on the host"]),
    ({"model": {}}, ["key model.path: is missing"]),
    ({"engine": {"version": "0.5.24"}}, ["key engine.version", "opsctl catalog add 0.5.24"]),
    ({"engine": {"version": 0.5}}, ['quote it: "0.5"']),
    ({"flags": {"hicache_ratio": 3}}, ["key flags.hicache_ratio", "write hicache-ratio"]),
    ({"flags": {"tp-size": 3, "nnodes": 2}}, ["key flags.nnodes", "3 × 1 do not divide by 2"]),
    ({"flags": {"mem-fraction-static": 88}}, ["makes no sense", "(value: 88.0)", "such as 0.88"]),
    ({"flags": {"hicache-ratio": -2}}, ["key flags.hicache-ratio", "(value: -2.0)"]),
    ({"flags": {"hicache-ratio": "1e308"}}, ["key flags.hicache-ratio", "below 1000"]),
    ({"flags": ["--tp", "8"]}, ["key flags: must be a mapping"]),
]


@pytest.mark.parametrize(("parts", "words"), WRONG, ids=lambda x: str(x)[:40])
def test_wrong_descriptions(parts: dict[str, Any], words: list[str]) -> None:
    text = "\n".join(said({"k": with_(**parts)}))
    assert all(word in text for word in words), text
    assert "CANARY" not in text
    assert all(line.startswith("service k") for line in text.splitlines())


def test_one_run_tells_everything() -> None:
    wrong = with_(port=0, flags={"tp": 8, "hicache-rat": 1}, model={"pth": "/x"})
    assert len(said({"k": wrong, "Bad Name": GOOD})) == 7  # both would take all GPUs


def test_what_is_wrong_with_a_service_hides_no_conflict_of_it() -> None:
    one = with_(gpus=[0, 0, 1], port=30000)
    two = with_(gpus=[1, 2], port=30000, flags={"tp": 2, "hicache-rat": 1})
    text = "\n".join(said({"one": one, "two": two}))
    for words in ("hicache-rat", "is the port of one too", "GPU 1 belongs to one too"):
        assert words in text
    assert "service one, key gpus" in text
    odd = with_(gpus="all", port="30000")
    assert not any("belongs" in line for line in said({"one": odd, "two": two}))


CONFLICTS: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({"gpus": [0, 1]}, {"gpus": [2, 3]}, ["key port: is the port of one too (value: 30000)"]),
    ({"gpus": [0, 1], "host": "10.0.0.1"}, {"gpus": [2, 3], "host": "10.0.0.2"}, []),
    ({"gpus": [0, 1], "host": "0.0.0.0"}, {"gpus": [2, 3], "host": "10.0.0.2"}, ["key port"]),
    ({"gpus": [0, 1]}, {"gpus": [1, 2], "port": 1}, ["key gpus: GPU 1 belongs to one too"]),
    ({}, {"gpus": [1, 2], "port": 1}, ["service one, key gpus: is unset"]),
    ({"flags": {"device": "cpu"}}, {"gpus": [1, 2], "port": 1}, []),
]


@pytest.mark.parametrize(("one", "two", "words"), CONFLICTS)
def test_services_of_one_host(one: dict[str, Any], two: dict[str, Any], words: list[str]) -> None:
    found = said({"one": with_(**one), "two": with_(**two)})
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


def test_a_changed_service_must_be_there() -> None:
    assert "did you mean kimi?" in said({"kimi": GOOD}, {"kimmi": {"port": 1}})[0]
    assert list(check({"a": with_(gpus=[0, 1])}, {"b": with_(port=1, gpus=[2, 3])})[0]) == [
        "a",
        "b",
    ]


def test_the_ssh_user_runs_no_service() -> None:
    assert "shared memory" in said({"k": with_(user="deploy")}, login="deploy")[0]


@pytest.mark.parametrize("shape", [[], "x", {"k": "x"}, {"k": None}])
def test_other_shapes_are_refused(shape: Any) -> None:
    assert len(said(shape)) == 1


def document(**services: Any) -> dict[str, Any]:
    host = {
        "sglang_services": services or {"k": with_(secrets={"api-key": "CANARY-1"})},
        "sglang_overrides": {"k": {"flags": {"hicache-ratio": 3}}},
        "origins": {
            "sglang_services.k.model.path": "group_vars/k.yml:3",
            "sglang_services.k.engine.version": "group_vars/k.yml:5",
            "sglang_services.k.flags.tensor-parallel-size": "group_vars/k.yml:7",
            "sglang_services.k.flags.hicache-ratio": "group_vars/k.yml:8",
            "sglang_overrides.k.flags.hicache-ratio": "host_vars/h1.yml:2",
        },
        "vars": {},
    }
    return {"hosts": {"h1": host, "h2": deepcopy(host)}}


def test_show_says_where_each_value_comes_from() -> None:
    shown = {s.key: (s.value, s.origin) for s in show(document(), "h1", "k")}
    assert shown["flags.tp-size"] == (2, "group_vars/k.yml:7")
    assert shown["flags.hicache-ratio"] == (3.0, "host_vars/h1.yml:2")
    assert shown["model.path"] == ("/srv/models/K", "group_vars/k.yml:3")
    assert shown["port"] == (30000, "default")
    assert shown["model.served_name"][1] == "set; Ansible does not say where"
    assert shown["secrets.api-key"][0] == "********"
    assert "CANARY" not in str(shown)


def test_problems_name_file_host_service_and_key() -> None:
    wrong = document(k=with_(flags={"tensor-parallel-size": "x", "hicache-ratio": 2}))
    with pytest.raises(SpecError) as caught:
        load(wrong, "h1")
    assert str(caught.value) == (
        "file group_vars/k.yml:7, host h1, service k, key flags.tensor-parallel-size: "
        "must be a whole number (value: 'x')"
    )


def test_validate_says_once_what_hosts_share() -> None:
    wrong = document(k=with_(flags={"tensor-parallel-size": "x", "hicache-ratio": 2}))
    assert [p.host for p in validate(wrong)] == ["h1, h2"]
    assert [p.host for p in validate(wrong, ["h2"])] == ["h2"]
    assert validate(document()) == []


@pytest.mark.parametrize("size", [0, "0", "0GiB", 34359738368, "34359738368", "1MiB", "0.5GiB"])
def test_sizes_that_may_be_meant(size: Any) -> None:
    services, found = check({"k": with_(memory={"min_available": size})}, {})
    assert not found and "k" in services
