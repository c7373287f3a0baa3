"""Figures called measured that contradict what else is known of model, cards and starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsctl.errors import Refused, SpecError
from opsctl.forecast.question import Given, Question, offline
from opsctl.forecast.told import Told, Wish, tell
from opsctl.onhost.expect import GiB

SIZES = Path(__file__).parents[1] / "dimensions/sizes.jsonl"
CONFIGS = {one["model"]: one["config"] for one in map(json.loads, SIZES.read_text().splitlines())}
KIMI, QWEN = CONFIGS["moonshotai/Kimi-K2.5"], CONFIGS["Qwen/Qwen3-32B"]
SEEN = {"gpu_free_before": "94.05GiB", "gpu_free_after": "21.71GiB"}  # TP8, 95 GiB
BEGIN, END = "Load weight begin. avail mem=78.10 GB", "Load weight end. type=Q, dtype=d, avail mem="
HEAD = (
    "[2026-01-01 09:59:00] server_args=ServerArgs(model_path='/srv/models/X', tp_size=2, "
    "pp_size=1, dp_size=1, mem_fraction_static=0.85, dtype='auto', quantization=None)\n"
)


def journal(ranks: str = "TP0 TP1", after: str = "47.20", tokens: int = 290692) -> str:
    used = f"{78.10 - float(after):.2f}"
    texts = (
        BEGIN,
        f"{END}{after} GB, mem usage={used} GB.",
        f"KV Cache is allocated. #tokens: {tokens}",
    )
    return "".join(
        f"[2026-01-01 10:0{n}:00 {rank}] {text}\n"
        for n, text in enumerate(texts)
        for rank in ranks.split()
    )


def asked(
    config: Any,
    flags: dict[str, Any],
    calibration: dict[str, Any] | None = None,
    sets: tuple[str, ...] = (),
    text: str = "",
    size: str | None = None,
    starts: tuple[dict[str, Any], ...] = (),
    **given: Any,
) -> Told:
    entry = {
        "engine": {"version": "0.5.9"},
        "model": {"path": "/srv/models/X", **({"size": size} if size else {})},
        "flags": {"mem-fraction-static": 0.85, **flags},
        "memory": {"calibration": calibration or {}},
    }
    said = Given(**{"ram_total": 2000.0, "ram_available": 2000.0, **given})
    facts = offline(said, {"texts": {"config.json": json.dumps(config)}}, None)
    question = Question(
        "x", entry, {**facts, "starts": list(starts)}, said.calibration(), sets, text
    )
    return tell(question, Wish())


def notes(told: Told) -> str:
    return "\n".join(told.outlook.notes if told.outlook is not None else told.notes)


def weights_basis(told: Told) -> str:
    assert told.outlook is not None and told.outlook.weights is not None
    return told.outlook.weights.basis


H20 = {"gpu_name": "H20", "gpu_total": 95.0}
H100 = {"gpu_name": "H100", "gpu_total": 79.65}
START = {
    "model": {"path": "/srv/models/X"},
    "ranks": {
        f"TP{n}": {"free_before_weights": int(94.05 * GiB), "free_after_weights": int(21.71 * GiB)}
        for n in range(8)
    },
}


def test_figures_of_eight_ranks_are_not_those_of_four() -> None:
    assert weights_basis(asked(KIMI, {"tp-size": 8}, SEEN, gpus=8, **H20)) == "measured"
    found = asked(KIMI, {"tp-size": 4}, SEEN, gpus=4, **H20)
    assert found.verdict == "does not fit"
    assert "memory.calibration) were not used: the weights took 72.34 GiB" in notes(found)


def test_nor_where_only_the_size_tells() -> None:
    """A way to load whose weights do not follow from dimensions."""
    flags = {"tp-size": 4, "load-format": "sharded_state"}
    found = asked(KIMI, flags, SEEN, size="540GB", gpus=4, **H20)
    assert "model.size over the ranks" in notes(found) and found.verdict == "does not fit"


def test_nor_where_an_earlier_start_with_them_had_other_settings() -> None:
    """Half the ranks, and half the layers: no band tells the two apart."""
    known = {**START, "flags": {"tp-size": 8, "quantization": "w4afp8"}}
    found = asked(KIMI, {"tp-size": 8}, SEEN, starts=(known,), gpus=8, **H20)
    assert "an earlier start here with mem-fraction" not in notes(found)
    assert "an earlier start here with quantization w4afp8" in notes(found)
    same = {**START, "flags": {"tp-size": 8}}
    assert "not used" not in notes(
        asked(KIMI, {"tp-size": 8}, SEEN, starts=(known, same), gpus=8, **H20)
    )


def test_more_memory_after_the_weights_than_before() -> None:
    wrong = {"gpu_free_before": "50GiB", "gpu_free_after": "60GiB"}
    with pytest.raises(SpecError, match=r"gpu_free_after \(60 GiB\) is more than gpu_free_before"):
        asked(QWEN, {"tp-size": 2}, wrong, gpus=2, **H100)
    with pytest.raises(Refused, match=r"calibration.gpu_free_after \(60 GiB\).*--gpu-free-before"):
        asked(
            QWEN, {"tp-size": 2}, {"gpu_free_after": "60GiB"}, gpu_free_before=40.0, gpus=2, **H100
        )
    with pytest.raises(Refused, match=r"--gpu-free-after \(60 GiB\).*calibration.gpu_free_before"):
        asked(
            QWEN, {"tp-size": 2}, {"gpu_free_before": "50GiB"}, gpu_free_after=60.0, gpus=2, **H100
        )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"gpu_tokens": 9_000_000}, "--gpu-tokens: 9,000,000 tokens are 1098.63 GiB"),
        ({"gpu_free_before": 78.0, "gpu_free_after": 70.0}, "--gpu-free-after.*took 8.00 GiB"),
        ({"gpu_free_after": 70.0}, "--gpu-free-after: 70.00 GiB free after"),
        ({"gpu_free_after": 20.0}, "--gpu-free-after: 20.00 GiB free after.*of a card were taken"),
        ({"gpu_free_before": 90.0, "gpu_total": None}, "--gpu-free-before: they are of other"),
    ],
)
def test_what_was_typed_is_refused_by_name(given: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        asked(QWEN, {"tp-size": 2}, **{"gpus": 2, **H100, **given})


@pytest.mark.parametrize("total", [79.65, None])
@pytest.mark.parametrize("after", [40.0, 43.0, 47.5])
def test_free_memory_after_the_weights_alone_makes_an_estimate(
    after: float, total: float | None
) -> None:
    """31 to 34 GiB of weights, and 0.8 to 3.8 GiB of driver and NCCL: nobody read what was free
    before them."""
    given = {**H100, "gpu_total": total, "gpu_free_after": after}
    found = asked(QWEN, {"tp-size": 2}, gpus=2, **given)
    assert found.outlook is not None and found.outlook.result.device.tokens is not None
    assert found.outlook.result.device.tokens.basis == "estimated"
    assert "the card's memory less" in found.outlook.result.device.tokens.source


def test_a_written_figure_that_takes_too_much_is_not_used() -> None:
    found = asked(QWEN, {"tp-size": 2}, {"gpu_free_after": "20GiB"}, gpus=2, **H100)
    assert "(memory.calibration) were not used: 20.00 GiB free after the weights" in notes(found)


def test_something_else_on_the_cards_is_told_by_what_is_free_before() -> None:
    given = {**H100, "gpu_free_before": 53.0, "gpu_free_after": 20.0}
    found = asked(QWEN, {"tp-size": 2}, gpus=2, **given)
    assert found.outlook is not None
    assert found.outlook.result.device.tokens is not None
    assert found.outlook.result.device.tokens.basis == "computed"


def test_tokens_that_no_card_holds() -> None:
    found = asked(QWEN, {"tp-size": 2}, {"kv_tokens": 9_000_000}, gpus=2, **H100)
    assert "a card of 79.65 GiB cannot hold them" in notes(found)
    assert found.outlook is not None and found.outlook.result.device.tokens is not None
    assert found.outlook.result.device.tokens.value < 400_000
    held = asked(QWEN, {"tp-size": 2}, {"kv_tokens": 250_000}, gpus=2, **H100)
    assert held.outlook is not None and held.outlook.case.measured.tokens == 250_000


def test_little_free_memory_is_told() -> None:
    found = asked(
        QWEN, {"tp-size": 2}, gpus=2, gpu_name="H200", gpu_total=140.0, gpu_free_before=94.05
    )
    assert "94.05 GiB free before the weights are little for cards of 140.00 GiB" in notes(found)


@pytest.mark.parametrize(
    ("text", "sets", "used", "words"),
    [
        (HEAD + journal(), (), True, ""),
        (journal(), (), True, "beginning (server_args=) is missing"),
        (journal(), ("tp-size=1",), False, "its ranks (TP0, TP1) are not those of these"),
        (journal("TP0 TP3"), (), False, "its ranks (TP0, TP3) are not those"),
        (journal(after="20.00"), (), False, "the weights took 58.10 GiB"),
        (HEAD + journal(after="20.00"), (), False, "the weights took 58.10 GiB"),
        (journal(), ("quantization=fp8",), False, "quantization was set"),
        ("".join(journal().splitlines(True)[4:]), (), False, "no weights tell what it is of"),
    ],
)
def test_a_journal(text: str, sets: tuple[str, ...], used: bool, words: str) -> None:
    found = asked(QWEN, {"tp-size": 2}, sets=sets, text=text, gpus=2, **H100)
    said = notes(found)
    assert words in said and (words or "not used" not in said)
    tokens = found.outlook.case.measured.tokens if found.outlook is not None else None
    assert (tokens == 290692) is used


def test_what_was_typed_goes_before_a_journal() -> None:
    text = HEAD + journal()
    found = asked(QWEN, {"tp-size": 2}, text=text, gpus=2, gpu_free_before=75.0, **H100)
    assert found.outlook is not None
    seen = found.outlook.case.measured
    assert (seen.free_before, seen.tokens) == (75 * GiB, None)
    assert seen.weights == pytest.approx(30.90 * GiB, rel=0.001)
    assert "that were typed go before those of the journal" in notes(found)


@pytest.mark.parametrize(
    ("used", "running", "told"),
    [(72, None, True), (0, None, False), (72, {"ranks": {}, "invocation": "i"}, False)],
)
def test_gpus_that_another_service_holds_are_told(used: int, running: Any, told: bool) -> None:
    facts = offline(Given(gpus=2, **H100), {"texts": {"config.json": json.dumps(QWEN)}}, None)
    other = {"service": "kimi", "state": "active", "enabled": "enabled", "standing": True}
    other |= {"expected": 0, "ranks": 2, "process": None, "held": 0, "pinned": None}
    cards = [{**card, "memory_used": used * GiB} for card in facts["gpus"]]
    facts = {**facts, "gpus": cards, "others": [other], "running": running}
    entry = {"engine": {"version": "0.5.9"}, "model": {"path": "/m"}, "flags": {"tp-size": 2}}
    said = notes(tell(Question("x", entry, facts), Wish()))
    assert ("up to 72.00 GiB of GPU 0-1 are in use" in said and "kimi runs here" in said) is told
