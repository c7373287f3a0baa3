"""`opsctl forecast` as a whole: the reference deployment to the digit, wishes, and wrong input."""

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from opsctl.cli import main
from opsctl.errors import Unreachable
from opsctl.forecast import question as given

SERVICE = {
    "model": {"path": "/srv/models/Kimi-K2.5", "served_name": "kimi-k2.5"},
    "engine": {"version": "0.5.9"},
    "flags": {
        "tp-size": 8,
        "mem-fraction-static": 0.88,
        "speculative-algorithm": "EAGLE3",
        "speculative-draft-model-path": "/srv/models/kimi-k2.5-eagle3",
        "speculative-eagle-topk": 1,
        "speculative-num-steps": 3,
        "speculative-num-draft-tokens": 4,
        "enable-hierarchical-cache": True,
        "hicache-ratio": 4.0,
        "hicache-write-policy": "write_through",
        "hicache-io-backend": "kernel",
    },
    "env": {"SGLANG_ENABLE_SPEC_V2": "1"},
    "memory": {"min_available": "32GiB", "swap": "forbid"},
}
KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "max_position_embeddings": 262144,
        "num_nextn_predict_layers": 0,
        "torch_dtype": "bfloat16",
    },
    "vision_config": {"vt_num_hidden_layers": 27, "vt_hidden_size": 1152},
}
EAGLE3 = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 7168,
    "num_hidden_layers": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "head_dim": 128,
    "torch_dtype": "bfloat16",
}
CARD = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
RAM = ("--ram-total", 449, "--ram-available", 449)
GPUS = ("--gpus", 8, "--gpu-name", CARD, "--gpu-total", 95.59)
FREE = ("--gpu-free-before", 94.05, "--gpu-free-after", 21.71)


def journal(ratio: str = "2.0", pool: str = "22.39") -> str:
    """The reference's own start, as `journalctl -o cat` shows it."""
    args = (
        "server_args=ServerArgs(model_path='/srv/models/Kimi-K2.5', tp_size=8, "
        f"mem_fraction_static=0.88, speculative_algorithm='EAGLE3', hicache_ratio={ratio}, "
        "speculative_draft_model_path='/srv/models/kimi-k2.5-eagle3', speculative_num_steps=3, "
        "speculative_eagle_topk=1, speculative_num_draft_tokens=4, hicache_io_backend='kernel', "
        "hicache_write_policy='write_through', enable_hierarchical_cache=True)"
    )
    texts = (
        "Load weight begin. avail mem=94.05 GB",
        "Load weight end. elapsed=612.40 s, type=KimiK25ForConditionalGeneration, "
        "dtype=torch.bfloat16, avail mem=21.71 GB, mem usage=72.34 GB.",
        "KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB",
        f"Allocating {pool} GB host memory for hierarchical KV cache.",
    )
    lines = [f"[2026-03-01 23:30:00] {args}"]
    lines += [
        f"[2026-03-01 23:4{n}:08 TP{rank}] {text}"
        for n, text in enumerate(texts)
        for rank in range(8)
    ]
    return "\n".join([*lines, "[2026-03-01 23:50:08] The server is fired up and ready to roll!"])


class Offline:
    """A folder with a description and the model's config; no inventory, no host."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "kimi.yml"
        self.path.write_text(yaml.safe_dump(SERVICE))
        (folder / "config.json").write_text(json.dumps(KIMI))
        (folder / "eagle3.json").write_text(json.dumps(EAGLE3))
        self.model = ("--model-config", folder / "config.json")
        self.draft = ("--draft-config", folder / "eagle3.json")

    def run(self, *args, service=None):
        given = [str(arg) for arg in ("forecast", service or self.path, *args)]
        return CliRunner(env={"NO_COLOR": "1"}).invoke(main.built(("forecast",)), given)

    def json(self, *args, code=0):
        done = self.run(*self.model, *self.draft, *args, "-o", "json")
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)


@pytest.fixture
def offline(tmp_path):
    return Offline(tmp_path)


# -- the reference deployment ---------------------------------------------------------------------


def test_the_reference_deployment_to_the_digit(offline):
    said = offline.json(*GPUS, *FREE, *RAM, "--gpu-tokens", 159277)
    assert (said["engine"], said["ranks"]) == ("0.5.9", 8)
    gpu, host = said["gpu"], said["host"]
    assert (gpu["bytes_per_token"], gpu["tokens"]) == (70272, 159277)
    assert round(gpu["kv_gib"], 2) == 10.42
    assert round(gpu["reserve_gib"], 2) == 11.29
    [pool] = host["pools"]
    assert (pool["name"], pool["tokens"], round(pool["gb"], 2)) == ("kv", 637109, 44.77)
    assert round(host["per_rank_gb"], 2) == 44.77
    assert round(host["total_gib"], 1) == 333.6
    assert int(host["available_after_gib"]) == 79
    assert (host["verdict"], said["verdict"]) == ("fits", "fits")
    assert host["prefix_tokens"] == 637109
    assert "hicache-eagle-draft-not-restored" in [one["id"] for one in said["advisories"]]


def test_ratio_4_from_the_journal_of_ratio_2_alone(offline):
    log = offline.folder / "start.log"
    log.write_text(journal())
    said = offline.json(*GPUS, *RAM, "--journal", log)
    assert (said["gpu"]["tokens"], said["gpu"]["tokens_basis"]) == (159277, "measured")
    assert said["host"]["pools"][0]["tokens"] == 637109
    assert int(said["host"]["available_after_gib"]) == 79
    assert round(said["gpu"]["weights_gib"], 2) == 72.34


def test_free_memory_alone_has_a_band_that_holds_the_truth(offline):
    gpu = offline.json(*GPUS, *FREE)["gpu"]
    least, most = gpu["tokens_band"]
    assert least <= 159277 <= most and most - least == pytest.approx(2 * 955 + 171, abs=3)
    assert gpu["tokens_basis"] == "computed"


def test_without_figures_of_the_gpus_the_rules_still_come(offline):
    said = offline.json()
    assert said["gpu"]["bytes_per_token"] == 70272
    assert (said["gpu"]["tokens"], said["verdict"]) == (None, "unknown")
    assert said["host"]["pools"][0]["ratio"] == 4.0
    assert any("not known before the first start" in note for note in said["notes"])


def test_an_unnamed_card_is_told_as_an_assumption(offline):
    said = offline.json("--gpus", 8, *FREE, *RAM)
    assert said["gpu"]["page"] == 1
    assert any("the cards are not known" in note for note in said["notes"])


@pytest.mark.parametrize(
    ("name", "vendor"),
    [(CARD, "nvidia"), ("", "nvidia"), ("AMD Instinct MI355X", "amd"), ("MI300X", "amd")],
)
def test_the_vendor_follows_from_the_cards_name(name, vendor):
    facts = given.offline(given.Given(gpus=1, gpu_name=name), {}, None)
    assert facts["gpus"][0]["vendor"] == vendor


def test_all_of_the_ram_is_told_as_an_assumption(offline):
    said = offline.json(*GPUS, *FREE, "--ram-total", 449)
    assert int(said["host"]["available_after_gib"]) == 79
    assert any("--ram-available was not given" in note for note in said["notes"])


def test_every_figure_has_its_band_and_basis(offline):
    said = offline.json(*GPUS, *FREE, *RAM)
    for group, names in (
        ("gpu", ("tokens", "kv_gib", "reserve_gib", "rest_gib", "weights_gib")),
        ("start", ("seconds",)),
    ):
        for name in names:
            assert said[group][name] is not None, name
            assert said[group][f"{name}_basis"] in ("computed", "measured", "estimated"), name
            assert len(said[group][f"{name}_band"]) == 2, name


def test_it_is_read_at_3_am(offline):
    done = offline.run(*offline.model, *offline.draft, *GPUS, *FREE, *RAM, "--gpu-tokens", 159277)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("kimi: fits, 79.43 GiB of RAM left")
    for part in ("159,277 tokens = 10.42 GiB", "637,109 tokens = 44.77 GB", "333.57 GiB"):
        assert part in done.stdout
    assert "\x1b" not in done.stdout


# -- what does not fit ----------------------------------------------------------------------------


def test_what_does_not_fit_ends_with_8(offline):
    said = offline.json(*GPUS, *FREE, *RAM, "--set", "hicache-ratio=6", code=8)
    assert said["verdict"] == said["host"]["verdict"] == "does not fit"
    assert said["host"]["reasons"]


def test_weights_that_leave_no_room_end_with_8(offline):
    done = offline.run(*offline.model, *GPUS, *RAM, "--gpu-free-before", 94, "--gpu-free-after", 8)
    assert done.exit_code == 8
    assert "no GPU memory for the KV cache" in done.stdout


def test_what_cannot_start_is_still_told_what_could(offline):
    said = offline.json(
        *GPUS, *RAM, "--gpu-free-before", 94, "--gpu-free-after", 10,
        "--fit", "mem-fraction-static", "--compare", code=8,
    )  # fmt: skip
    assert "no GPU memory" in said["refused"] and said["verdict"] == "does not fit"
    assert 0.9 < said["fit"]["value"] < 0.95
    found = {one["name"]: one for one in said["compare"]}
    assert "no GPU memory" in found["as described"]["refused"]
    assert found["higher fraction"]["verdict"] == "fits"


def test_more_ranks_than_gpus_end_with_8(offline):
    done = offline.run(*offline.model, "--gpus", 4, *FREE)
    assert done.exit_code == 8
    assert "8 ranks on this host, and it has 4 GPUs" in done.stdout


def test_a_kind_of_model_that_is_not_known_ends_with_1(offline):
    (offline.folder / "config.json").write_text('{"architectures": ["MadeUpForCausalLM"]}')
    done = offline.run(*offline.model, "-o", "json")
    assert done.exit_code == 1
    assert "MadeUpForCausalLM" in json.loads(done.stdout)["refused"]
    assert "MadeUpForCausalLM" in done.stderr


# -- what if --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sets", "tokens", "host"),
    [
        (["hicache-ratio=2"], 159277, 318555),
        (["hicache-ratio=3", "hicache-ratio=2"], 159277, 318555),
        (["enable-hierarchical-cache=null"], 159277, None),
        (["kv-cache-dtype=fp8_e4m3"], 318552, 1274209),
        (["page-size=64"], 159232, 636992),
        (["hicache-size=40"], 159277, 569216),
    ],
)
def test_set(offline, sets, tokens, host):
    asked = [part for one in sets for part in ("--set", one)]
    said = offline.json(*GPUS, *FREE, *RAM, "--gpu-tokens", 159277, *asked)
    # Tokens that were measured say nothing of another dtype: there they follow from free memory.
    assert abs(said["gpu"]["tokens"] - tokens) <= (64 if "fp8_e4m3" in sets[0] else 0)
    pools = said["host"]["pools"]
    found = pools[0]["tokens"] if pools else None
    assert found == host or abs(found - host) <= 256


def test_another_version_counts_the_draft(offline):
    said = offline.json(*GPUS, *FREE, *RAM, "--set", "engine.version=0.5.14")
    assert said["engine"] == "0.5.14"
    assert said["gpu"]["charged_bytes_per_token"] == 71424
    assert [pool["name"] for pool in said["host"]["pools"]] == ["kv", "draft"]


def test_the_descriptions_own_number_of_tokens_is_of_its_own_settings(offline):
    sizes = {"gpu_free_before": "94.05GiB", "gpu_free_after": "21.71GiB", "kv_tokens": 159277}
    entry = {**SERVICE, "memory": {**SERVICE["memory"], "calibration": sizes}}
    offline.path.write_text(yaml.safe_dump(entry))
    assert offline.json(*GPUS)["gpu"]["tokens"] == 159277
    assert offline.json(*GPUS, "--set", "hicache-ratio=2")["gpu"]["tokens"] == 159277
    more = offline.json(*GPUS, "--set", "mem-fraction-static=0.9")["gpu"]
    assert (more["tokens_basis"], more["tokens"] > 180_000) == ("computed", True)


@pytest.mark.parametrize("form", ["yaml", "jsonl"])
def test_other_forms_hold_the_same(offline, form):
    done = offline.run(*offline.model, *GPUS, *FREE, *RAM, "-o", form)
    said = yaml.safe_load(done.stdout)
    assert said["gpu"]["bytes_per_token"] == 70272


# -- whose the owner's figures are ----------------------------------------------------------------


def calibrated(offline, **more):
    sizes = {"gpu_free_before": "94.05GiB", "gpu_free_after": "21.71GiB", **more}
    entry = {**SERVICE, "memory": {**SERVICE["memory"], "calibration": sizes}}
    offline.path.write_text(yaml.safe_dump(entry))


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("change", ["tp-size=4", "dtype=float32", "quantization=awq", "ep-size=8"])
def test_free_memory_is_of_what_was_loaded_then(offline, written, change):
    if written:
        calibrated(offline, kv_tokens=159277)
    figures = () if written else (*FREE, "--gpu-tokens", 159277)
    cards = ("--gpus", 16, "--gpu-name", CARD)
    said = offline.json(*cards, *figures, *RAM, "--set", change)
    assert (said["gpu"]["tokens"], said["verdict"]) == (None, "unknown")
    assert any(change.partition("=")[0] in n and "not used" in n for n in said["notes"])


def test_a_variant_does_not_take_the_figures_of_other_ranks(offline):
    said = offline.json(*GPUS, *FREE, *RAM, "--compare", "tp-size=4")
    assert said["compare"][-1]["set"] == ["tp-size=4"]
    assert said["compare"][-1]["tokens"] is None
    assert any("tp-size 8" in note for note in said["compare"][-1]["notes"])


def test_figures_that_are_set_with_the_change_are_of_it(offline):
    calibrated(offline)
    sets = ("tp-size=4", "memory.calibration.gpu_free_after=20GiB")
    said = offline.json(*GPUS, *[p for one in sets for p in ("--set", one)])
    assert said["gpu"]["tokens_basis"] == "computed"


def test_what_leaves_the_weights_alone_leaves_the_figures(offline):
    calibrated(offline)
    for change in ("mem-fraction-static=0.9", "kv-cache-dtype=fp8_e4m3", "hicache-ratio=2"):
        assert offline.json(*GPUS, "--set", change)["gpu"]["tokens"] is not None


def test_a_draft_that_is_loaded_first_takes_of_what_is_free_after_the_weights(offline):
    """0.5.14: 21.71 GiB of 0.5.9 are without the draft's weights."""
    said = offline.json(*GPUS, *FREE, *RAM, "--set", "engine.version=0.5.17")
    assert said["gpu"]["rest_gib_basis"] != "computed"
    assert any("another figure in 0.5.17 than in 0.5.9" in note for note in said["notes"])
    offline.path.write_text(yaml.safe_dump({**SERVICE, "engine": {"version": "0.5.17"}}))
    said = offline.json(*GPUS, *FREE, *RAM)
    assert any("the second" in note for note in said["notes"])


@pytest.mark.parametrize(("name", "total"), [("NVIDIA B200", 179), ("NVIDIA H200", 140.4)])
def test_a_journal_of_other_cards_is_not_taken_for_these(offline, name, total):
    text = offline.folder / "start.log"
    text.write_text(journal())
    cards = ("--gpus", 8, "--gpu-name", name, "--gpu-total", total)
    said = offline.json(*cards, "--ram-total", 9000, "--journal", text)
    assert any("of other cards" in note and "94.05 GiB" in note for note in said["notes"])
    assert said["gpu"]["tokens"] != 159277
    same = offline.json(*GPUS, *RAM, "--journal", text)
    assert same["gpu"]["tokens"] == 159277
    assert not any("of other cards" in note for note in same["notes"])


def test_figures_that_these_cards_cannot_have_are_not_taken(offline):
    calibrated(offline, kv_tokens=159277)
    said = offline.json("--gpus", 8, "--gpu-name", "NVIDIA H100 80GB", "--gpu-total", 79.65)
    assert said["gpu"]["tokens"] is None
    assert any("of other cards" in note for note in said["notes"])


# -- wishes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "more", "value"),
    [
        ("hicache-ratio", (), 4.4),
        ("hicache-ratio", ("--headroom", "80GiB"), 3.8),
        ("hicache-size", (), 50),
        ("hicache_size", ("--headroom", "1GiB"), 53),
        ("mem-fraction-static", ("--set", "enable-hierarchical-cache=null"), 0.932),
        ("mem-fraction-static", ("--gpu-headroom", "10GiB", "--set", "hicache-ratio=1"), 0.879),
        ("context-length", (), 157696),
    ],
)
def test_the_largest_that_fits(offline, key, more, value):
    """By hand: (449 − 8 × 5.5 − 32) / 8 = 46.6 GiB a rank, and so on."""
    short = "80GiB" in more  # as described, 79.43 GiB are left
    given = (*GPUS, *FREE, *RAM, "--fit", key, *more)
    found = offline.json(*given, code=8 if short else 0)["fit"]
    assert found["value"] == pytest.approx(value, abs=0.0151 if "mem" in key else 1e-9)
    assert found["verdict"] == "fits"
    assert found["limits"]


def test_the_largest_value_fits_and_the_next_does_not(offline):
    best = offline.json(*GPUS, *FREE, *RAM, "--fit", "hicache-ratio")["fit"]["value"]
    assert offline.json(*GPUS, *FREE, *RAM, "--set", f"hicache-ratio={best}")["verdict"] == "fits"
    over = offline.json(*GPUS, *FREE, *RAM, "--set", f"hicache-ratio={best + 0.1:.1f}")
    assert over["verdict"] != "fits"


@pytest.mark.parametrize("there", [0.87, 0.88, 0.879])
@pytest.mark.parametrize("by", ["typed", "journal"])
def test_tokens_of_another_fraction_hold_for_no_other(offline, there, by):
    """What a start at `there` logged says nothing of 0.999."""
    flags = {**SERVICE["flags"], "mem-fraction-static": there}
    offline.path.write_text(yaml.safe_dump({**SERVICE, "flags": flags}))
    known = ("--gpu-tokens", 159277)
    if by == "journal":
        (offline.folder / "start.log").write_text(
            journal().replace("static=0.88", f"static={there}")
        )
        known = ("--journal", (offline.folder / "start.log"))
    now = (
        *GPUS,
        *FREE,
        *RAM,
        *known,
        "--set",
        "mem-fraction-static=0.85",
        "--set",
        "hicache-ratio=2",
    )
    said = offline.json(*now, "--fit", "mem-fraction-static", "--compare")
    value = said["fit"]["value"]
    assert 0.85 < value < 0.95
    assert offline.json(*now, "--set", f"mem-fraction-static={value}")["verdict"] == "fits"
    higher = next(one for one in said["compare"] if one["name"] == "higher fraction")
    assert higher["verdict"] == "fits"


def test_a_journal_that_shows_no_fraction_tells_no_tokens_of_what_is_set(offline):
    (offline.folder / "start.log").write_text(journal().replace("mem_fraction_static=0.88, ", ""))
    now = (*GPUS, *RAM, "--journal", (offline.folder / "start.log"))
    assert offline.json(*now)["gpu"]["tokens_basis"] == "measured"
    said = offline.json(*now, "--set", "mem-fraction-static=0.8801")
    assert said["gpu"]["tokens_basis"] != "measured"
    assert any("mem-fraction-static was set, and the journal" in note for note in said["notes"])


def test_the_race_proof_bound_of_the_newest_versions(offline):
    """0.5.19+: above (free − 10 GiB) / (2 × 8 − 1) a rank it depends on the order of ranks."""
    offline.path.write_text(yaml.safe_dump({**SERVICE, "engine": {"version": "0.5.23"}}))
    said = offline.json(*GPUS, *FREE, *RAM, "--fit", "hicache-size")
    found = said["fit"]
    assert found["value"] < 30 < found["possible"]
    assert any("order of ranks" in limit for limit in found["limits"])
    assert any("in every order of ranks" in note for note in found["notes"])


def test_nothing_fits(offline):
    done = offline.json(
        *GPUS, *FREE, "--ram-total", 60, "--ram-available", 60, "--fit", "hicache-ratio", code=8
    )
    assert done["fit"]["value"] is None and done["fit"]["limits"]


def test_a_largest_value_of_what_is_not_known_ends_with_1(offline):
    said = offline.json(*RAM, "--fit", "hicache-ratio", code=1)
    assert "--gpu-free-before" in said["fit"]["unknown"]
    assert "--gpu-tokens" in said["fit"]["unknown"]


def test_the_four_ways_side_by_side(offline):
    said = offline.json(*GPUS, *FREE, *RAM, "--gpu-tokens", 159277, "--compare", "hicache-ratio=3")
    found = {one["name"]: one for one in said["compare"]}
    assert list(found) == [
        "as described",
        "no host tier",
        "higher fraction",
        "host tier",
        "FP8 KV",
        "FP8 KV + tier",
        "hicache-ratio=3",
    ]
    assert found["as described"]["prefix_tokens"] == 637109
    assert found["no host tier"]["total_gib"] == 0
    assert found["higher fraction"]["tokens"] > 200_000
    assert found["FP8 KV"]["tokens"] == pytest.approx(2 * 159277, abs=4)
    assert found["FP8 KV"]["kv_gib"] == pytest.approx(10.424, abs=0.01)
    both = found["FP8 KV + tier"]
    assert both["prefix_tokens"] == pytest.approx(2 * found["host tier"]["prefix_tokens"], rel=0.01)
    assert any("answers may change" in note for note in both["notes"])
    assert found["hicache-ratio=3"]["prefix_tokens"] == 477832
    assert all(one["verdict"] == "fits" for one in found.values())


def test_a_comparison_fits_a_terminal(offline):
    done = offline.run(*offline.model, *GPUS, *FREE, *RAM, "--compare")
    table = [line for line in done.stdout.splitlines() if line[:2].strip().isdigit()]
    assert len(table) >= 6 and all(len(line) <= 80 for line in table[:6])


def test_a_wrong_name_in_a_variant_is_refused(offline):
    done = offline.run(*offline.model, *GPUS, *FREE, *RAM, "--compare", "hicache-ratoi=3")
    assert done.exit_code == 2 and "hicache-ratio" in done.stderr


def test_each_step_is_explained(offline):
    steps = offline.json(*GPUS, *FREE, *RAM, "--gpu-tokens", 159277, "--explain")["explain"]
    text = "\n".join(steps)
    for part in (
        "(512 + 64) elements × 61 layers × 2 B = 70,272 B",
        "0.12 × free before them",
        "int(159,277 × hicache-ratio 4), whole pages of 1 token and one more = 637,109 tokens",
        "637,109 tokens × 70,272 B = 44.77 GB",
        "449.00 GiB: MemAvailable",
        "79.43 GiB left",
    ):
        assert part in text


# -- wrong input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--set", "hicache-ratoi=3"), "hicache-ratio"),
        (("--set", "hicache-ratio"), "is not KEY=VALUE"),
        (("--set", "memory.min_availble=1GiB"), "min_available"),
        (("--set", "engine.version=0.5.99"), "0.5.99"),
        (("--set", "tp-size=0"), "tp-size"),
        (("--fit", "hicache-ratoi"), "--fit hicache-ratio"),
        (("--fit", "page-size"), "cannot be fitted"),
        (("--fit", ""), "cannot be fitted"),
        (("--gpus", -1), "--gpus -1 is not a number above zero"),
        (("--gpu-tokens", 0), "--gpu-tokens 0 is not a number above zero"),
        (("--ram-total", -4), "--ram-total -4 is not a number above zero"),
        (("--ram-total", "nan"), "--ram-total nan is not a number above zero"),
        (("--ram-total", "inf"), "--ram-total inf is not a number"),
        (("--ram-total", "449GiB"), "'--ram-total'"),
        (("--ram-total", 100, "--ram-available", 200), "is more than --ram-total"),
        (("--gpu-free-before", 20, "--gpu-free-after", 30), "is more than --gpu-free-before"),
        (("--gpu-total", 80, "--gpu-free-before", 90), "is more than --gpu-total"),
        (("--headroom", "much"), "--headroom much: is no size"),
        (("--headroom", "20"), "--headroom 20: a number alone is bytes, and less than 1 MiB"),
        (("--gpu-headroom", "5"), "did you mean 5GiB?"),
        (("--headroom", "-1GiB"), "is no size"),
        (("--journal", "none.log"), "there is no file none.log"),
        (("--draft-config", "none.json"), "there is no file none.json"),
        (("hicache-ratio=3",), "--set hicache-ratio=3"),
    ],
)
def test_wrong_options(offline, args, words):
    done = offline.run(*offline.model, *args)
    assert done.exit_code == 2, done.output
    assert words in done.stderr
    assert "fault of opsctl" not in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "this is not YAML"),
        ("- 1", "holds no description"),
        ("model: {path: relative}\nengine: {version: 0.5.9}", "absolute"),
        ("model: {path: /m}\nengine: {version: 0.5.9}\nflags: {tp: '{{ n }}'}", "is a template"),
    ],
)
def test_wrong_descriptions(offline, text, words):
    offline.path.write_text(text)
    done = offline.run(*offline.model)
    assert done.exit_code == 2, done.output
    assert words in done.stderr


def test_a_template_is_told_by_set(offline):
    entry = {**SERVICE, "flags": {**SERVICE["flags"], "hicache-ratio": "{{ ratio }}"}}
    offline.path.write_text(yaml.safe_dump(entry))
    said = offline.json(*GPUS, *FREE, *RAM, "--set", "hicache-ratio=2")
    assert said["host"]["pools"][0]["ratio"] == 2


def test_a_journal_that_tells_of_no_start(offline):
    (offline.folder / "x.log").write_text("nothing\n")
    done = offline.run(*offline.model, "--journal", offline.folder / "x.log")
    assert done.exit_code == 2 and "start" in done.stderr


def test_a_model_that_is_not_here(offline):
    done = offline.run()
    assert done.exit_code == 2
    assert "/srv/models/Kimi-K2.5 is not on this machine" in done.stderr
    assert "--model-config" in done.stderr


def test_no_such_file(offline):
    done = offline.run(service="/none/such.yml")
    assert done.exit_code == 2 and "there is no file /none/such.yml" in done.stderr


def test_several_services_of_a_file(offline):
    two = {"sglang_services": {"a": SERVICE, "b": {**SERVICE, "port": 30001}}}
    offline.path.write_text(yaml.safe_dump(two))
    done = offline.run(*offline.model)
    assert done.exit_code == 2 and "--service a" in done.stderr
    assert offline.json("--service", "b")["service"] == "b"


def test_a_model_folder_here_needs_no_option(offline):
    folder = offline.folder / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(KIMI))
    entry = {**SERVICE, "model": {"path": str(folder)}}
    offline.path.write_text(yaml.safe_dump(entry))
    done = offline.run("-o", "json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["gpu"]["bytes_per_token"] == 70272


# -- hosts ----------------------------------------------------------------------------------------


def answered(call):
    """What the host says to `facts`, of a machine like the reference's."""
    gib = 1 << 30
    cards = [
        {"index": n, "name": CARD, "memory_total": 97887 << 20, "state": "ok"} for n in range(8)
    ]
    return {
        "model": {"path": "/srv/m", "exists": True, "texts": {"config.json": json.dumps(KIMI)}},
        "draft": None,
        "memory": {
            "total": 449 * gib,
            "available": 449 * gib,
            "swap_total": 0,
            "swap_used": 0,
            "hugetlb": 0,
        },
        "gpus": cards,
        "starts": [],
        "running": None,
        "standing": {"state": "absent"},
    }


def test_a_service_of_the_inventory_asks_its_hosts(cli):
    for host in cli.hosts.values():
        host.verbs["facts"] = answered
    done = cli("forecast", "kimi", "--set", "mem-fraction-static=0.88", "-o", "json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)["forecasts"]
    assert [one["hostname"] for one in said] == ["h1", "h2"]
    assert all(one["gpu"]["bytes_per_token"] == 70272 for one in said)
    assert cli.hosts["h1"].said("facts")[0].args[:2] == ("--model", "/srv/m")


def test_one_lost_host_is_told_after_the_others(cli):
    cli.hosts["h1"].verbs["facts"] = answered

    def gone(call):
        raise Unreachable("timed out", host="h2", step="connect")

    cli.hosts["h2"].verbs["facts"] = gone
    done = cli("forecast", "kimi")
    assert done.exit_code == 4
    assert "h1 kimi: unknown" in done.stdout and "timed out" in done.stderr
    said = json.loads(cli("forecast", "kimi", "-o", "json").stdout)["forecasts"]
    assert "verdict" in said[0]["host"] and said[1] == {"hostname": "h2", "error": "timed out"}


def test_what_a_host_tells_itself_cannot_be_typed(cli):
    done = cli("forecast", "kimi", "--ram-total", "449")
    assert done.exit_code == 2
    assert "--ram-total is for a description in a file" in done.stderr


def test_a_fraction_is_told_as_a_person_reads_it(offline):
    """The engine chooses 0.7721792968749999 for a model with a vision tower."""
    said = offline.json(*GPUS, "--set", "mem-fraction-static=null")
    text = str(said["gpu"]["mem_fraction_static"])
    assert len(text) <= len("0.123456")


def test_thousands_stand_apart_and_no_exponent_is_told(offline):
    done = offline.run(
        *offline.model, *offline.draft, *GPUS, *FREE, *RAM, "--fit", "context-length"
    )
    line = next(one for one in done.stdout.splitlines() if one.startswith("largest that fits"))
    assert re.search(r"\d\d,\d{3} tokens$", line)
