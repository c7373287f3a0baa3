"""`--fit`: thin ranges are found, and what stands in the way is named for what it is."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from opsctl.errors import SpecError
from opsctl.forecast.compare import compare
from opsctl.forecast.evaluate import evaluate
from opsctl.forecast.fit import FITS
from opsctl.forecast.outlook import outlook
from opsctl.forecast.question import Given, Question, described, offline
from opsctl.forecast.slack import ACTIVATIONS
from opsctl.forecast.solve import KNOBS, Solved, solve
from opsctl.forecast.told import solved_of
from opsctl.forecast.values import Case, NoStart
from opsctl.onhost.expect import GiB

CONFIGS = Path(__file__).parent / "configs"
LINES = (Path(__file__).parent / "dimensions/sizes.jsonl").read_text().splitlines()
SIZES = {one["model"]: one["config"] for one in map(json.loads, LINES)}
QWEN = {
    "model": {"path": "/srv/models/X"},
    "engine": {"version": "0.5.9"},
    "flags": {"tp-size": 1},
}
KIMI = {
    "model": {"path": "/srv/models/K"},
    "engine": {"version": "0.5.23"},
    "flags": {
        "tp-size": 8,
        "mem-fraction-static": 0.88,
        "enable-hierarchical-cache": True,
        "hicache-ratio": 4.0,
    },
}
H100 = {"gpu_name": "NVIDIA H100 80GB HBM3", "gpu_total": 79.65, "gpu_free_before": 78.5}
KIMI_0_5_9 = {**KIMI, "engine": {"version": "0.5.9"}}
PRO = {
    "gpu_name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "gpu_total": 95.59,
    "gpu_free_before": 94.05,
    "gpu_free_after": 21.71,
}


def held(config: str) -> dict:
    return json.loads((CONFIGS / f"{config}.json").read_text())["config"]


def question(entry: dict, config: str, sets: tuple[str, ...] = (), **given: object) -> Question:
    said = Given(**{"ram_total": 256.0, "ram_available": 250.0, **given})
    text = json.dumps(SIZES.get(config) or held(config))
    model = {"path": "/srv/models/X", "exists": True, "texts": {"config.json": text}, "files": []}
    return Question("one", entry, offline(said, model, None), said.calibration(), sets)


def qwen(after: float, *sets: str, gpus: int = 1) -> Question:
    return question(QWEN, "Qwen3-32B", sets, gpus=gpus, gpu_free_after=after, **H100)


def solved(asked: Question, key: str, sets: tuple[str, ...] = ()) -> Solved:
    case = asked.case(sets)
    return solve(case, key, case.min_available, ACTIVATIONS)


def test_the_few_fractions_that_weights_leave_are_found():
    """10 of 78.5 GiB are left: below 0.873 the weights do not fit, above 0.925 activations."""
    found = solved(qwen(10), "mem-fraction-static")
    assert found.value == 0.925
    assert found.possible is not None and found.possible > 0.95


@pytest.mark.parametrize("after", [6.5, 7.5, 8.6, 9.3, 11.1, 14.2])
def test_no_fraction_above_the_answer_fits(after):
    case = qwen(after).case()
    found = solve(case, "mem-fraction-static", case.min_available, ACTIVATIONS)
    for n in range(850, 990):
        if found.value is None or n / 1000 > found.value:
            got = solved_verdict(case, n / 1000)
            assert not got, f"{n / 1000} fits, and {found.value} was said"


def solved_verdict(case: Case, fraction: float) -> bool:
    """By the verdict of the forecast itself."""
    flags = {**case.flags, "mem-fraction-static": fraction}
    try:
        result = evaluate(replace(case, flags=flags))
    except NoStart:
        return False
    return result.fit.verdict == FITS


def test_the_comparison_finds_it_too():
    asked = qwen(10)

    def fit(sets, key):
        return solved(asked, key, tuple(sets))

    found = compare(QWEN["flags"], lambda sets: outlook(asked, sets), fit)
    chosen = next(one for one in found if one.name == "higher fraction")
    assert chosen.sets == ("mem-fraction-static=0.925",)


def test_where_none_fits_the_nearest_tells_why():
    """4 GiB: the least fraction that starts leaves less for activations than is demanded."""
    found = solved(qwen(4), "mem-fraction-static")
    assert found.value is None
    assert any("5.00 GiB for activations are demanded" in why for why in found.limits)
    assert all(why.startswith("at mem-fraction-static 0.") for why in found.limits)
    assert not any("weights leave no" in why for why in found.limits)


def test_what_is_short_of_a_demand_never_looks_like_it():
    asked = qwen(17.2)
    found = solved(asked, "mem-fraction-static")
    for headroom in range(5 * GiB - GiB // 50, 5 * GiB + GiB // 50, GiB // 200):
        case = asked.case()
        found = solve(case, "mem-fraction-static", case.min_available, headroom)
        words = next(why for why in found.limits if "demanded" in why)
        left, demanded = words.split(" GiB of")[0], words.split("graphs: ")[1].split(" GiB")[0]
        assert float(left) < float(demanded), words


def test_a_context_is_judged_by_the_gpu_alone():
    """The host pool of ratio 4 does not fit in 256 GiB, and no context changes that."""
    found = solved(question(KIMI, "Kimi-K2.5", gpus=8, **PRO), "context-length")
    assert found.value is not None
    assert any("judged by the GPU alone" in note for note in found.notes)


def test_the_tokens_that_were_judged_by_are_told():
    entry = {**KIMI, "flags": {"tp-size": 8, "mem-fraction-static": 0.88}}
    found = solved(question(entry, "Kimi-K2.5", gpus=8, **PRO), "context-length")
    wanted, there = (
        int(part.replace(",", "")) for part in found.limits[0].split() if part[0].isdigit()
    )
    assert there < wanted


@pytest.mark.parametrize("key", sorted(KNOBS))
def test_a_description_takes_every_value_that_may_be_answered(key):
    dial = KNOBS[key]
    flags = {"enable-hierarchical-cache": True} if key.startswith("hicache") else {}
    entry = {**QWEN, "flags": {**QWEN["flags"], **flags, key: dial.value(dial.most)}}
    try:
        described("one", entry, ())
    except SpecError as error:
        pytest.fail(str(error))


def test_a_tier_is_judged_by_ram_and_says_that_the_gpu_is_tight():
    """0.95 of 78.5 GiB leaves less than the 5 GiB that activations are allowed."""
    entry = {**QWEN, "flags": {"tp-size": 1, "mem-fraction-static": 0.95}}
    given = {**H100, "gpus": 1, "gpu_free_after": 17.2}
    found = solved(question(entry, "Qwen3-32B", **given), "hicache-ratio")
    assert found.value is not None and found.result.fit.gpu == "tight"
    assert any("the GPU is tight" in note for note in found.notes)


# -- what has to be set, and that there is one judgement ------------------------------------------

TIER, RATIO, SIZE = "enable-hierarchical-cache", "hicache-ratio", "hicache-size"


@pytest.mark.parametrize(
    ("flags", "key", "beside"),
    [
        ({}, RATIO, (f"{TIER}=true",)),
        ({TIER: True}, RATIO, ()),
        ({TIER: True, RATIO: 2.0}, RATIO, ()),
        ({TIER: True, SIZE: 40}, RATIO, (f"{SIZE}=null",)),
        ({TIER: True, RATIO: 2.0}, SIZE, (f"{RATIO}=null",)),
        ({SIZE: 40}, SIZE, (f"{TIER}=true",)),
        ({SIZE: 40}, "mem-fraction-static", ()),
    ],
)
def test_all_that_has_to_be_set_is_said(flags, key, beside):
    entry = {**KIMI, "flags": {"tp-size": 8, "mem-fraction-static": 0.88, **flags}}
    asked = question(entry, "Kimi-K2.5", gpus=8, ram_total=900.0, ram_available=890.0, **PRO)
    found = solved(asked, key)
    assert found.value is not None
    assert found.sets == (*beside, f"{key}={found.value:.10g}")


@pytest.mark.parametrize("fraction", [n / 1000 for n in range(975, 992)])
def test_gpu_memory_left_has_one_truth(fraction):
    """An 8B model on one H100: what of the GPU lacks is not called tight, nor the other way."""
    asked = question(QWEN, "meta-llama/Meta-Llama-3.1-8B", gpus=1, gpu_name="H100")
    found = solved(asked, "mem-fraction-static")
    assert found.possible is not None
    fit = outlook(asked, (f"mem-fraction-static={fraction}",)).result.fit
    assert fit.gpu == ("tight" if fraction <= found.possible else "does not fit")
    if fit.gpu != "tight":
        assert "of GPU memory lacks beside weights, pools and graphs" in fit.reasons[0]


def test_a_context_is_held_against_what_the_next_start_may_find():
    """A start logged 159,277 tokens; the next may have 64 MiB less of a GPU, whichever of its
    figures is known: 955 tokens."""
    entry = {**KIMI_0_5_9, "flags": {"tp-size": 8, "mem-fraction-static": 0.88}}
    for known in ({}, {"gpu_tokens": 159277}):
        asked = question(entry, "Kimi-K2.5", gpus=8, **PRO, **known)
        found = solved_of(asked, "context-length")
        assert found.value == 157696  # 154 × 1,024; 155 are 158,720
        assert outlook(asked, found.sets).result.fit.gpu == FITS
        more = outlook(asked, ("context-length=158720",)).result.fit
        assert more.gpu == "tight" and "158,720 tokens of one request" in more.reasons[0]


@pytest.mark.parametrize("change", ["context-length=100000", "page-size=64"])
@pytest.mark.parametrize("known", [{}, {"gpu_free_before": None, "gpu_free_after": None}])
def test_what_is_set_at_first_is_judged_as_what_is_tried(change, known):
    """`forecast --set X` and a value of --fit or --compare: a number of tokens that was typed is of
    neither."""
    entry = {**KIMI_0_5_9, "flags": {"tp-size": 8, "mem-fraction-static": 0.88}}
    given = {**PRO, **known, "gpus": 8, "gpu_tokens": 159277}
    first = outlook(question(entry, "Kimi-K2.5", (change,), **given))
    tried = outlook(question(entry, "Kimi-K2.5", **given), (change,))
    assert first.result == tried.result
    tokens = first.result.device.tokens
    assert tokens is None or tokens.basis == "computed"
    assert any("159,277 is of the settings as described" in note for note in first.notes)


def test_a_context_that_is_described_is_judged_as_it_was_seen():
    """158,250 of 159,277 logged tokens: known of the described value alone."""
    flags = {"tp-size": 8, "mem-fraction-static": 0.88, "context-length": 154 * 1024 + 512}
    asked = question({**KIMI_0_5_9, "flags": flags}, "Kimi-K2.5", gpus=8, **PRO, gpu_tokens=159277)
    assert outlook(asked).result.fit.gpu == FITS


def test_a_headroom_of_the_gpu_is_demanded_of_a_start_that_was_seen_too():
    entry = {**KIMI, "flags": {"tp-size": 8, "mem-fraction-static": 0.88}}
    asked = question(entry, "Kimi-K2.5", gpus=8, **PRO, gpu_tokens=159277)
    found = solved_of(replace(asked, gpu_headroom=30 * GiB), "context-length")
    assert found.value is None and "30.00 GiB for activations are demanded" in found.limits[0]


def test_tokens_that_one_host_writes_are_of_its_own_description():
    """Not of what is set over it, as those of the description are not."""
    entry = {**KIMI, "memory": {"calibration": {"kv_tokens": 159277}}}
    asked = replace(question(entry, "Kimi-K2.5", gpus=8), base=KIMI)
    assert asked.case().measured.tokens == 159277
    assert asked.case(("hicache-ratio=3",)).measured.tokens == 159277
    assert asked.case(("mem-fraction-static=0.9",)).measured.tokens is None
    own = "memory.calibration.kv_tokens=170000"
    assert asked.case(("mem-fraction-static=0.9", own)).measured.tokens == 170000
