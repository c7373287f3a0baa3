"""`--fit` over random hosts: the value fits, the next larger one does not, and what is called
possible does start."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opsctl.forecast import evaluate
from opsctl.forecast.fit import FITS, NOT
from opsctl.forecast.solve import FRACTION, RATIO, SIZE, TIER, solve
from opsctl.forecast.values import (
    Case,
    Geometry,
    Hardware,
    Heads,
    HostMemory,
    Latent,
    Measured,
    NoForecast,
)
from opsctl.onhost.expect import GiB

CARD = "NVIDIA RTX PRO 6000 Blackwell Server Edition"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    layers, tp = draw(st.integers(1, 96)), draw(st.sampled_from([1, 2, 4, 8]))
    attention = draw(
        st.one_of(
            st.builds(Heads, st.sampled_from([1, 2, 8, 64]), st.just(128), st.just(128)),
            st.just(Latent(512, 64)),
        )
    )
    before = draw(st.integers(20, 280)) * GiB
    after = int(before * draw(st.floats(0.3, 0.9)))
    ram = draw(st.integers(64, 2048)) * GiB
    return Case(
        draw(st.sampled_from(["0.5.9", "0.5.14", "0.5.18", "0.5.19", "0.5.23"])),
        {"tp-size": tp, "mem-fraction-static": draw(st.sampled_from([0.8, 0.88, 0.92]))},
        {},
        tuple(f"TP{n}" for n in range(tp)),
        Geometry(
            "DeepseekV3ForCausalLM" if isinstance(attention, Latent) else "LlamaForCausalLM",
            layers,
            attention,
            tuple(range(layers)),
            context=131072,
        ),
        None,
        Hardware(tp, (CARD,) * tp, before),
        HostMemory(ram, ram - 4 * GiB),
        Measured(free_before=before, free_after=after, source="x"),
        None,
        None,
        16 * GiB,
    )


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from([RATIO, SIZE]), st.integers(0, 64))
def test_the_host_tier(case: Case, key: str, headroom: int) -> None:
    try:
        found = solve(case, key, headroom * GiB, 5 * GiB)
    except NoForecast:
        assume(False)

    def verdict(value: float) -> str:
        flags = {**case.flags, TIER: True, key: value}
        fit = evaluate(replace(case, flags=flags, min_available=headroom * GiB)).fit
        return NOT if fit.gpu == NOT else fit.ram  # a tight GPU is as tight with any tier

    step = 0.1 if key == RATIO else 1
    if found.value is not None:
        assert verdict(found.value) == FITS
        assert verdict(found.value + step) != FITS
        assert found.limits
    if found.possible is not None:
        assert verdict(found.possible) != NOT
        assert found.value is None or found.possible > found.value


@settings(max_examples=40, deadline=None)
@given(cases(), st.integers(1, 12))
def test_the_fraction(case: Case, gpu: int) -> None:
    try:
        found = solve(case, FRACTION, 0, gpu * GiB)
    except NoForecast:
        assume(False)
    assume(found.value is not None)
    assert found.value is not None and found.result is not None
    reserve = found.result.device.reserve
    assert reserve is not None and (reserve.least or 0) >= gpu * GiB
    more = {**case.flags, FRACTION: round(found.value + 0.001, 3)}
    left = evaluate(replace(case, flags=more)).device.reserve
    assert left is not None and left.value < reserve.value
    assert found.value == pytest.approx(round(found.value, 3))
