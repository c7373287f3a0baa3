"""What a change will do to one service: figures now and then, advisories, version, time."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from opsctl.cli.console import plain
from opsctl.cli.planning import steps_of
from opsctl.release.render import render
from opsctl.rollout import duration, stage
from opsctl.rollout.foresight import Detail
from opsctl.rollout.planned import Planned, planned
from opsctl.views import plan as view
from tests.unit.rollout.test_staging import CONFIG, GIB, Machine, service

LOGGED = {
    "kv_tokens": 159277,
    "kv_bytes": int(10.42 * GIB),
    "weights_bytes": int(72.34 * GIB),
    "host_pools": [{"name": "kv", "bytes": 22_390_000_000, "tokens": None}],
}


class Serving(Machine):
    """It runs the release of `old`, and has logged a ratio of 2.0."""

    def __init__(self, old: Any, name: str = "h1", **ranks: dict[str, Any]) -> None:
        super().__init__(available=(449 - 167 - 36) * GIB)
        self.name = name
        self.old = render("kimi", old).manifest
        facts = self.verbs["facts"]
        logged = {f"TP{n}": {**LOGGED, **ranks.get(f"TP{n}", {})} for n in range(8)}
        self.verbs["facts"] = lambda call: {
            **facts(call),
            "running": {"invocation": "x", "ranks": logged},
            "service_memory": {"bytes": (167 + 36) * GIB, "basis": "cgroup"},
        }

    def state(self) -> dict[str, Any]:
        digest = self.old["digest"]
        release = {"running": digest, "confirmed": digest, "edited": False}
        return {"service": "kimi", "state": "active", "release": release, "manifest": self.old}


def look(old: Any, new: Any, *names: str, **ranks: dict[str, Any]) -> Planned:
    said = {
        name: stage(Serving(old, name, **ranks), {"kimi": new}, check=True)
        for name in names or ("h1",)
    }
    return planned({name: ["kimi"] for name in said}, said)


def detail(old: Any, new: Any, **ranks: dict[str, Any]) -> Detail:
    return look(old, new, **ranks).details["h1", "kimi"]


def test_figures_of_now_and_then_with_what_they_are_known_by() -> None:
    rows = {row.name: row for row in detail(service(2.0), service(4.0)).rows}
    tokens, pools, left = rows["KV tokens"], rows["host pools"], rows["RAM left"]
    assert (tokens.now, tokens.now_basis, tokens.then) == (159277, "logged", 159277)
    assert (tokens.then_basis, tokens.scope) == ("measured", "rank")
    assert (pools.now, pools.then) == (22_390_000_000, 637109 * 70272)
    assert rows["host pools of all ranks"].now == 8 * 22_390_000_000
    assert (left.now, left.now_basis) == ((449 - 167 - 36) * GIB, "shown")
    assert left.then is not None and round(left.then / GIB) == 79
    assert left.then_basis == "estimated" and left.least is not None
    assert left.least <= left.then - 8 * GIB, "a band of 1 GiB for each process"


def test_ranks_that_differ_are_said_to_and_one_that_is_silent_leaves_no_figure() -> None:
    other = {"TP3": {"kv_tokens": 150000}}
    rows = {row.name: row for row in detail(service(2.0), service(4.0), **other).rows}
    assert rows["KV tokens"].now == 150000 and "differ" in rows["KV tokens"].now_basis
    silent = {"TP3": {"kv_tokens": None}}
    rows = {row.name: row for row in detail(service(2.0), service(4.0), **silent).rows}
    assert rows["KV tokens"].now is None


def flags(**more: Any) -> Any:
    base = {"tp-size": 8, "mem-fraction-static": 0.88, "enable-hierarchical-cache": True}
    named = {key.replace("_", "-"): value for key, value in more.items()}
    return service(flags={**base, "hicache-ratio": 2.0, **named})


def test_one_line_a_changed_flag() -> None:
    said = detail(flags(), flags(chunked_prefill_size=4096, hicache_ratio=4.0))
    assert said.why == ("chunked-prefill-size unset → 4096", "hicache-ratio 2.0 → 4.0")
    quiet = detail(service(2.0), service(2.0, gates={"soak": "5s"}))
    assert quiet.why[0] == "gates soak 30.0 → 5.0"


def test_advisories_that_begin_stay_and_end() -> None:
    eagle = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3}
    more = {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}
    begins = detail(flags(), flags(**eagle, **more))
    marks = {one.advisory.id: one.mark for one in begins.advisories}
    assert marks["hicache-eagle-draft-not-restored"] == "new"
    assert "stays" in marks.values() and not begins.ended
    ends = detail(flags(**eagle, **more), flags())
    assert "hicache-eagle-draft-not-restored" in {one.id for one in ends.ended}


LINEAR = json.dumps(
    {
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
        "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4,
        "linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "torch_dtype": "bfloat16",
    }
)  # fmt: skip
OTHER = {"path": "/srv/models/other", "served_name": "m"}


def of_models(host: Serving, **texts: str) -> Serving:
    """Each model's folder has its own config.json; one that is not named is not there."""
    facts = host.verbs["facts"]

    def answer(call: Any) -> dict[str, Any]:
        path = call.args[call.args.index("--model") + 1]
        name = path.rpartition("/")[2]
        folder = {"path": path, "exists": name in texts, "texts": {}}
        if name in texts:
            folder["texts"] = {"config.json": texts[name]}
        return {**facts(call), "model": folder}

    host.verbs["facts"] = answer
    return host


def foreseen(host: Serving, new: Any) -> Detail:
    said = {"h1": stage(host, {"kimi": new}, check=True)}
    return planned({"h1": ["kimi"]}, said).details["h1", "kimi"]


def test_advisories_of_another_model_begin_and_end_too() -> None:
    host = of_models(Serving(service(2.0, model=OTHER)), m=CONFIG, other=LINEAR)
    said = foreseen(host, service(2.0))
    marks = {one.advisory.id: one.mark for one in said.advisories}
    assert set(marks.values()) <= {"new", "stays"} and "stays" in marks.values()
    ended = {one.id for one in said.ended}
    back = of_models(Serving(service(2.0)), m=CONFIG, other=LINEAR)
    new = {o.advisory.id for o in foreseen(back, service(2.0, model=OTHER)).advisories
           if o.mark == "new"}  # fmt: skip
    assert ended and new == ended, "what ends one way begins the other way"


def test_another_name_of_the_model_hides_no_mark() -> None:
    renamed = service(4.0, model={"path": "/srv/models/m", "served_name": "n"})
    host = Serving(service(2.0))
    said = foreseen(host, renamed)
    assert {one.mark for one in said.advisories} == {"stays"}
    assert len(host.said("facts")) == 1, "the same files: the host is asked once"


def test_nothing_is_compared_with_a_model_that_has_gone() -> None:
    said = foreseen(of_models(Serving(service(2.0, model=OTHER)), m=CONFIG), service(2.0))
    assert {one.mark for one in said.advisories} == {""} and not said.ended


STRANGE = json.dumps({"architectures": ["NobodyForCausalLM"], "model_type": "nobody"})


def test_what_only_one_of_two_models_has_figures_for_neither_begins_nor_ends() -> None:
    """A context beyond the cache: known of the one model alone, though it holds for both."""
    texts, sized = {"m": CONFIG, "other": STRANGE}, "context-longer-than-the-cache"
    known = flags(context_length=200_000)
    strange = service(flags=dict(known.flags), model=OTHER)
    both = foreseen(of_models(Serving(service(2.0)), **texts), known)
    assert {one.advisory.id: one.mark for one in both.advisories}[sized] == "new"
    said = foreseen(of_models(Serving(strange), **texts), known)
    marks = {one.advisory.id: one.mark for one in said.advisories}
    assert marks[sized] == "" and "stays" in marks.values()
    back = foreseen(of_models(Serving(known), **texts), strange)
    assert sized not in {one.id for one in back.ended}
    assert sized not in {one.advisory.id for one in back.advisories}


def test_what_another_version_does_to_this_service() -> None:
    newer = service(2.0, engine={"version": "0.5.15"})
    said = detail(service(2.0), newer)
    assert said.versions == ("0.5.9", "0.5.15")
    assert said.engine and not said.engine_unknown
    assert {change.kind for change in said.engine} <= {"default", "void", "deprecated", "type"}
    assert not {change.flag for change in said.engine} & set(newer.flags)
    assert detail(service(2.0), service(4.0)).versions is None


def test_a_version_without_a_catalogue_is_told_and_no_error() -> None:
    host = Serving(service(2.0))
    host.old = {**host.old, "engine": {**host.old["engine"], "version": "0.4.1"}}
    said = {"h1": stage(host, {"kimi": service(4.0)}, check=True)}
    found = planned({"h1": ["kimi"]}, said).details["h1", "kimi"]
    assert "0.4.1" in found.engine_unknown


def test_how_long_it_takes_step_by_step() -> None:
    new = render("kimi", service(4.0)).manifest
    phases = {"weights": duration.Figure(600, 500, 700, "measured", "")}
    found = duration.takes(new, new, True, phases)
    assert list(found) == ["drain", "stop", "start", "gates"]
    drain, stop, start, gates = (found[name] for name in found)
    assert (drain.least, drain.most) == (0, new["timing"]["drain"])  # type: ignore[union-attr]
    assert start.value == 600 and stop.most == 75  # type: ignore[union-attr]
    assert gates.least == 30  # type: ignore[union-attr]  # the soak, which is certain
    total = duration.together(found.values())
    assert total is not None and total.least == 0 + 1 + 500 + 30
    first = duration.takes(new, None, False, {})
    assert list(first) == ["start", "gates"] and first["start"] is None
    assert duration.together(first.values()) is None


def test_a_cap_that_may_come_too_soon_is_told() -> None:
    short = service(4.0, timing={"cap": "20s"})
    host = Serving(service(2.0))
    facts = host.verbs["facts"]
    big = {"weights_bytes": 547_000_000_000, "cached": 0.0, "storage": {"kind": "nvme"}}

    def told(call: Any) -> dict[str, Any]:
        answer = copy.deepcopy(facts(call))
        answer["model"] |= big
        return dict(answer)

    host.verbs["facts"] = told
    found = planned({"h1": ["kimi"]}, {"h1": stage(host, {"kimi": short}, check=True)})
    one = found.details["h1", "kimi"]
    assert (one.cap, one.cap_of) == (20.0, "description")
    assert "timing.cap ends it after 20 s" in one.cap_warning
    text = plain(view.drawing(steps_of(found), found.total))
    assert text.count("timing.cap ends it after 20 s") == 1
    host.verbs["facts"] = told
    usual = planned({"h1": ["kimi"]}, {"h1": stage(host, {"kimi": service(4.0)}, check=True)})
    one = usual.details["h1", "kimi"]
    assert one.cap_of == "forecast" and one.cap % 600 == 0 and not one.cap_warning


def test_many_hosts_with_one_change_are_read_as_one() -> None:
    found = look(service(2.0), service(4.0), "h1", "h2", "h3")
    text = plain(view.drawing(steps_of(found), found.total))
    assert text.count("hicache-scheduler-memory-grows") == 1
    assert text.count("host pools a rank") == 1
    for host in ("h2", "h3"):
        assert f"{host} kimi: restart: hicache-ratio 2.0 → 4.0\n" in text
    assert text.count("the same as on h1: figures, advisories, duration") == 2
    assert text.count("GiB of RAM left, 246.00 GiB now") == 3, "each host's own"


def test_a_step_for_programs_has_units_and_bands() -> None:
    found = look(service(2.0), service(4.0))
    document = view.document(steps_of(found), found.total)
    (step,) = document["steps"]
    rows = {row["name"]: row for row in step["figures"]}
    assert rows["KV tokens"]["unit"] == "tokens" and rows["RAM left"]["unit"] == "bytes"
    assert rows["host pools"]["then"] == 637109 * 70272
    assert step["verdict"] == "fits" and step["ram_verdict"] == "fits"
    assert step["duration"]["steps"][0]["step"] == "drain"
    assert document["changes"] == 1
    assert step["min_available"] == 32 * GIB


@pytest.mark.parametrize("reason", ["", "owner"])
def test_what_does_not_fit_is_shown_all_the_same(reason: str) -> None:
    host = Serving(service(2.0))
    host.available = 190 * GIB  # with 203 GiB that come back: 393 in all
    said = {"h1": stage(host, {"kimi": service(4.0)}, check=True, override=reason)}
    found = planned({"h1": ["kimi"]}, said)
    text = plain(view.drawing(steps_of(found)))
    assert "forecast: does not fit" in text and "host pools a rank" in text
    assert (found.error() is None) == bool(reason)
    assert ("overridden: owner" in text) == bool(reason)
