"""Staging as the CLI and Ansible do it, with the real renderer and the real forecast."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from opsctl import rollout
from opsctl.errors import DoesNotFit, OpsctlError, SpecError
from opsctl.remote.fake import Call, FakeHost
from opsctl.rollout import Staged, refuse
from opsctl.spec.models import Service

GIB = 1 << 30
NO_SWAP = {"swap_total": 0, "swap_used": 0, "hugetlb": 0}
# The reference deployment's geometry: (512 + 64) × 61 layers × 2 bytes = 70,272 bytes a token.
CONFIG = json.dumps(
    {
        "architectures": ["DeepseekV3ForCausalLM"],
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "num_hidden_layers": 61,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "hidden_size": 7168,
        "torch_dtype": "bfloat16",
        "model_type": "deepseek_v3",
    }
)


def service(ratio: float = 4.0, **more: Any) -> Service:
    return Service.model_validate(
        {
            "model": {"path": "/srv/models/m", "served_name": "m"},
            "engine": {"version": "0.5.9"},
            "flags": {
                "tp-size": 8,
                "mem-fraction-static": 0.88,
                "enable-hierarchical-cache": True,
                "hicache-ratio": ratio,
            },
            "memory": {"min_available": "32GiB", "calibration": {"kv_tokens": 159277}},
            **more,
        }
    )


def stage(host: FakeHost, name: str, what: Service, **more: Any) -> Staged:
    (one,) = rollout.stage(host, {name: what}, **more)
    return one


class Machine(FakeHost):
    """449 GiB; `available` as it is with nothing running."""

    def __init__(self, available: int = 449 * GIB) -> None:
        super().__init__("h1")
        self.staged: dict[str, Any] | None = None
        self.available = available
        self.verbs = {
            "facts": lambda call: {
                "model": {
                    "path": "/srv/models/m",
                    "exists": True,
                    "texts": {"config.json": CONFIG},
                },
                "draft": None,
                "memory": {"total": 449 * GIB, "available": self.available, **NO_SWAP},
                "gpus": [{"name": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}] * 8,
                "starts": [],
                "running": None,
                "standing": self.state(),
            },
            "stage": self._stage,
        }

    def state(self) -> dict[str, Any]:
        return {"service": "kimi", "state": "active", "manifest": self.staged}

    def _stage(self, call: Call) -> dict[str, Any]:
        files = {f["path"]: base64.b64decode(f["b64"]) for f in call.json["files"]}
        manifest = json.loads(files["release.json"])
        changed = manifest != self.staged
        if "--check" not in call.args:
            self.staged = manifest
        return {"changed": changed, "diff": "", "digest": manifest["digest"], "restart": changed}


def test_the_expectation_travels_in_the_release() -> None:
    host = Machine()
    staged = stage(host, "kimi", service())
    assert staged.changed
    assert staged.verdict == "restart: first release"
    assert host.staged is not None
    pool = host.staged["expect"]["host_pools"][0]
    assert host.staged["expect"]["kv"]["tokens"] == 159277
    assert pool["bytes"] == 637109 * 70272  # 44.77 GB, as the reference deployment logged
    facts = host.said("facts")[0].args
    assert facts == ("--model", "/srv/models/m", "--service", "kimi", "--process")


def test_whose_staging_it_is_travels_with_the_release_and_not_in_it() -> None:
    host, by = Machine(), {"run": "r1", "owner": "me@here", "reason": "role"}
    assert (
        stage(host, "kimi", service(), by=by).digest == stage(Machine(), "kimi", service()).digest
    )
    assert host.said("stage")[0].json["by"] == by


def test_a_second_staging_changes_nothing_though_memory_has_moved() -> None:
    host = Machine()
    stage(host, "kimi", service())
    host.available -= GIB
    again = stage(host, "kimi", service())
    assert (again.changed, again.verdict) == (
        False,
        "no restart: nothing but comments or order differs",
    )


def test_another_ratio_says_why_it_restarts() -> None:
    host = Machine()
    stage(host, "kimi", service(2.0))
    assert stage(host, "kimi", service(4.0)).verdict == "restart: hicache-ratio 2.0 → 4.0"


def test_check_sends_but_writes_nothing() -> None:
    host = Machine()
    assert stage(host, "kimi", service(), check=True).changed
    assert host.staged is None


def test_what_does_not_fit_is_refused_before_anything_is_sent() -> None:
    host = Machine(available=380 * GIB)
    with pytest.raises(DoesNotFit, match=r"does not fit.*32\.00 GiB demanded") as caught:
        stage(host, "kimi", service())
    assert (caught.value.exit_code, caught.value.host) == (8, "h1")
    assert host.said("stage") == []
    staged = stage(host, "kimi", service(), override="trying the limit with the owner")
    assert "does not fit" in staged.warning
    assert "trying the limit with the owner" in staged.warning
    assert host.staged is not None
    assert host.staged["expect"]["override"] == "trying the limit with the owner"
    assert not stage(host, "kimi", service(), override="trying the limit with the owner").changed


def test_a_bad_description_is_refused_before_the_host_is_asked() -> None:
    host = Machine()
    with pytest.raises(SpecError, match="hicache-ratio"):
        stage(host, "kimi", service(flags={"hicache-ration": 4.0}))
    assert host.calls == []


def test_a_secret_is_sent_through_stdin_only() -> None:
    host = Machine()
    staged = stage(host, "kimi", service(secrets={"api-key": "canary-k3y-0123456789"}))
    assert "canary" not in repr(staged)
    assert all("canary" not in word for call in host.calls for word in call.args)
    sent = {f["path"]: base64.b64decode(f["b64"]) for f in host.said("stage")[0].json["files"]}
    assert b"canary-k3y-0123456789" in sent["secrets/api-key"]


CARDS = [{"index": n, "state": "ok", "memory_total": 97887 << 20} for n in range(8)]


@pytest.mark.parametrize(
    ("gpus", "more", "said"),
    [
        (CARDS, {}, ""),
        ([], {}, ""),  # a host that shows none is not judged here
        (CARDS[:7], {}, "8 ranks on this host, and it has 7 GPUs"),
        ([*CARDS[:7], {"index": 7, "state": "error"}], {}, "it has 7 GPUs in order"),
        (CARDS[:4], {"gpus": [0, 1, 2, 3, 4, 5, 6, 7]}, "GPU 4, 5, 6, 7 of the description"),
    ],
)
def test_too_few_gpus_are_told_before_anything_is_sent(
    gpus: list[dict[str, Any]], more: dict[str, Any], said: str
) -> None:
    host = Machine()
    facts = host.verbs["facts"]
    host.verbs["facts"] = lambda call: {**facts(call), "gpus": gpus}
    if not said:
        assert stage(host, "kimi", service(**more)).changed
        return
    with pytest.raises(OpsctlError, match=said):
        stage(host, "kimi", service(**more))
    assert host.said("stage") == []


def test_the_forecast_is_told_in_words() -> None:
    told = stage(Machine(), "kimi", service(), check=True).forecast
    assert any("159,277 tokens" in line for line in told)
    assert any("44.77 GB a rank, × 8" in line for line in told)
    assert any(line.endswith("of host memory left: fits") for line in told)


def test_what_would_keep_it_from_starting_is_told_of_all_hosts() -> None:
    host = Machine()
    answer = host.verbs["stage"]
    gone = "/opt/sglang/0.5.9 is not there"
    host.verbs["stage"] = lambda call: {**answer(call), "problems": [gone], "hints": ["mend it"]}
    staged = stage(host, "kimi", service(), check=True)
    assert staged.problems == (gone,)
    with pytest.raises(
        OpsctlError, match=r"nothing was touched: kimi on h1: .* is not there"
    ) as refused:
        refuse([stage(Machine(), "kimi", service()), staged])
    assert refused.value.hint == "mend it; all of it: opsctl doctor --limit h1"
    with pytest.raises(OpsctlError) as bare:
        refuse([replace(staged, hints=())])
    assert bare.value.hint == "opsctl doctor --limit h1"
    refuse([stage(Machine(), "kimi", service())])


def test_what_threatens_it_as_it_runs_is_a_warning_and_refuses_nothing() -> None:
    host = Machine()
    answer = host.verbs["stage"]
    danger = "user llm has UID 1001"
    host.verbs["stage"] = lambda call: {**answer(call), "warnings": [danger]}
    staged = stage(host, "kimi", service(), check=True)
    assert staged.warning == danger
    refuse([staged])
    assert stage(Machine(), "kimi", service(), check=True).warning == ""
