"""What `opsctl forecast` says where it refuses, and how it lies on a page."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from opsctl.cli import main

CONFIGS = Path(__file__).parents[1] / "forecast/datapoints/configs"
SIZES = Path(__file__).parents[1] / "forecast/dimensions/sizes.jsonl"
RAM = ("--ram-total", 256, "--ram-available", 250)
CARD = ("--gpus", 1, "--gpu-name", "H100", "--gpu-total", 79.65)
FREE = ("--gpu-free-before", 78.5, "--gpu-free-after", 17.2)


class Asked:
    """Qwen3-32B on one H100, as somebody types it who has no host yet."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "q32.yml"
        self.model = CONFIGS / "qwen3-32b.json"
        self.write({"tp-size": 1})

    def write(self, flags, **more) -> None:
        entry = {"model": {"path": "/srv/models/Qwen3-32B"}, "engine": {"version": "0.5.9"}}
        self.path.write_text(yaml.safe_dump({**entry, "flags": flags, **more}))

    def weighed(self) -> None:
        """With a config.json that its weights follow from."""
        lines = map(json.loads, SIZES.read_text().splitlines())
        config = next(one["config"] for one in lines if one["model"].endswith("Qwen3-32B"))
        self.model = self.path.with_name("config.json")
        self.model.write_text(json.dumps(config))

    def run(self, *args, env=None):
        given = ["forecast", self.path, "--model-config", self.model, *args]
        runner = CliRunner(env={"NO_COLOR": "1", **(env or {})})
        return runner.invoke(main.built(("forecast",)), [str(arg) for arg in given])


@pytest.fixture
def asked(tmp_path):
    return Asked(tmp_path)


# -- refusals -------------------------------------------------------------------------------------


def test_weights_without_room_tell_how_much_lacks(asked):
    done = asked.run(*CARD, *RAM, "--gpu-free-before", 78.5, "--gpu-free-after", 10)
    assert done.exit_code == 8
    for part in ("68.50 GiB of the 78.50 GiB", "12.95 GiB are kept free", "must be above 0.873"):
        assert part in " ".join(done.stdout.split())
    assert "--fit mem-fraction-static" in done.stderr


def test_weights_without_room_in_json(asked):
    args = (*CARD, *RAM, "--gpu-free-before", 78.5, "--gpu-free-after", 10, "-o", "json")
    done = asked.run(*args)
    gpu = json.loads(done.stdout)["gpu"]
    assert (gpu["weights_gib"], gpu["mem_fraction_static_above"]) == (68.5, 0.873)
    assert gpu["rest_gib"] == pytest.approx(10 - 78.5 * 0.165, abs=0.01)
    assert "must be above 0.873" in done.stderr


def test_other_causes_are_not_the_weights(asked):
    args = ("--set", "max-total-tokens=10", "--set", "page-size=64")
    done = asked.run(*CARD, *FREE, *RAM, *args)
    assert done.exit_code == 8
    assert "max-total-tokens 10 is less than a page of 64 tokens" in done.stdout


@pytest.mark.parametrize(
    ("sets", "remedy"),
    [
        ("tp-size=2", "next: --set tp-size=1 would start"),
        ("context-length=1000000", "next: --fit context-length tells the largest value that fits"),
        ("page-size=0", ""),
    ],
)
def test_a_refusal_is_told_once_and_with_what_helps(asked, sets, remedy):
    done = asked.run(*CARD, *FREE, *RAM, "--set", sets)
    assert done.exit_code == 8
    assert done.stderr.rstrip() == f"error: q32: does not fit\n{remedy}".rstrip()
    both = done.stdout + done.stderr
    assert both.count("on this host") + both.count("refuse to start") == 1


def test_no_largest_value_of_what_is_refused_anyhow(asked):
    asked.write({"tp-size": 1, "attention-backend": "flashmla"})
    done = asked.run(*CARD, *FREE, *RAM, "--fit", "mem-fraction-static")
    assert done.exit_code == 8
    assert "largest that fits" not in done.stdout
    assert "no largest value: SGLang 0.5.9 would refuse" in done.stdout


def test_weights_in_host_memory_are_not_forecast(asked):
    done = asked.run(*CARD, *FREE, *RAM, "--set", "cpu-offload-gb=20")
    assert done.exit_code == 1
    assert "cpu-offload-gb is set, and its effect" in done.stdout


# -- on a page ------------------------------------------------------------------------------------

FOUR = (
    "mem-fraction-static=0.9 kv-cache-dtype=fp8_e4m3 enable-hierarchical-cache=true hicache-ratio=2"
)


@pytest.mark.parametrize(("columns", "most"), [("80", 80), ("120", 120), ("", 100), ("x", 100)])
def test_no_line_is_wider_than_the_page(asked, columns, most):
    args = (*CARD, *FREE, *RAM, "--compare", FOUR, "--explain", "--fit", "mem-fraction-static")
    done = asked.run(*args, env={"COLUMNS": columns})
    lines = done.stdout.splitlines()
    assert most - 25 < max(map(len, lines)) <= most
    assert "17,117 to 17,677" in done.stdout and "1 − 0.835" in done.stdout


def test_a_long_cell_goes_on_below_itself(asked):
    done = asked.run(*CARD, *FREE, *RAM, env={"COLUMNS": "80"})
    lines = done.stdout.splitlines()
    at = next(n for n, line in enumerate(lines) if "KV cache" in line)
    column = lines[at].index("17,117")
    assert lines[at + 1][:column].strip() == "" and lines[at + 1][column] != " "


def test_rows_of_a_comparison_are_numbers_and_their_settings_stand_below(asked):
    done = asked.run(*CARD, *FREE, *RAM, "--compare", FOUR, env={"COLUMNS": "80"})
    lines = done.stdout.splitlines()
    head = next(n for n, line in enumerate(lines) if "TOKENS" in line)
    rows = lines[head + 1 : head + 7]
    assert [row.split()[0] for row in rows] == list("123456")
    assert all(row.endswith(("fits", "tight")) for row in rows)
    below = " ".join(" ".join(lines[head + 7 :]).split())
    assert "1 as described 2 higher fraction: --set mem-fraction-static=0." in below
    assert "6 " + " ".join(f"--set {part}" for part in FOUR.split()) in below


# -- what is missing ------------------------------------------------------------------------------


def said(done) -> str:
    return " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--gpu-free-before", 78.5), "free after the weights is missing (--gpu-free-after)"),
        (("--gpu-free-after", 17.2), "free before the weights is missing (--gpu-free-before, or"),
        ((), "(--gpu-free-before, or --gpu-total to estimate it)"),
    ],
)
def test_the_figure_that_is_missing_is_named(asked, args, words):
    done = asked.run("--gpus", 1, "--gpu-name", "NVIDIA A100", *RAM, *args)  # of 40 or 80 GB
    assert done.exit_code == 0 and words in said(done)


@pytest.mark.parametrize("name", ["banana", "Quadro RTX 5000"])
def test_a_card_that_nobody_knows_is_named_with_those_that_are(asked, name):
    done = asked.run("--gpus", 1, "--gpu-name", name, *RAM)
    assert done.exit_code == 1
    assert f"the card '{name}' is not known here (--gpu-name takes H100" in said(done)


def test_a_draft_that_is_not_there_says_what_to_set(asked):
    done = asked.run(*CARD, *FREE, "--set", "speculative-algorithm=EAGLE3")
    assert "set speculative-draft-model-path, and give its config.json" in said(done)


def test_a_table_that_fills_the_gpu_is_named(asked):
    more = ("--set", "context-length=4000000", "--set", "max-running-requests=2048")
    asked.write({"tp-size": 1}, env={"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"})
    done = asked.run(*CARD, *FREE, *RAM, "--gpu-tokens", 17000, *more)
    assert done.exit_code == 8 or "table of requests" in said(done)
    assert "2,048 requests × 4,000,000 tokens × 4 B = 30.52 GiB" in said(done)
    assert "table of requests" not in said(asked.run(*CARD, *FREE, *RAM))


# -- wrong input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--gpu-total", 81559), "--gpu-total 79.65, if 81559 are MiB"),
        (("--gpu-free-after", 21000), "is in GiB, and more than any GPU has"),
        (("--ram-total", 2_000_000), "more than any host has"),
        (("foo", "--compare"), "--compare: 'foo' is not KEY=VALUE"),
        (("tp-size=2 foo", "--compare"), "--compare: 'foo' is not KEY=VALUE"),
        (("two.yml",), "next: opsctl forecast two.yml"),
        (("--fit", "ratio"), "next: --fit hicache-ratio"),
        (("--journal", "/dev/null"), "--journal: /dev/null is empty"),
    ],
)
def test_what_is_wrong_is_named(asked, args, words):
    done = asked.run(*args)
    assert done.exit_code == 2, done.output
    assert words in done.stderr and "key --set" not in done.stderr


def test_a_key_that_is_like_none_gets_no_name(asked):
    done = asked.run("--fit", "tp-size")
    assert done.exit_code == 2 and "next:" not in done.stderr


def test_headrooms_are_of_a_comparison_too(asked):
    done = asked.run(*CARD, *FREE, *RAM, "--gpu-headroom", "6GiB", "--compare")
    assert done.exit_code == 0


def test_a_file_that_is_no_text_and_a_folder_are_mistakes_of_the_caller(asked):
    asked.path.write_bytes(b"model: \xff\xfe")
    done = asked.run()
    assert done.exit_code == 2 and "is not UTF-8 text" in done.stderr
    asked.path.unlink()
    asked.path.mkdir()
    done = asked.run()
    assert done.exit_code == 2 and "cannot read" in done.stderr


# -- what has to be set ---------------------------------------------------------------------------


def test_a_largest_ratio_says_all_that_has_to_be_set(asked):
    asked.write({"tp-size": 1, "hicache-size": 20})
    done = asked.run(*CARD, *FREE, *RAM, "--fit", "hicache-ratio")
    told = "--set enable-hierarchical-cache=true --set hicache-size=null --set hicache-ratio="
    assert f"it counts with all of {told}" in said(done)
    done = asked.run(*CARD, *FREE, *RAM, "--fit", "hicache-ratio", "-o", "json")
    fit = json.loads(done.stdout)["fit"]
    assert fit["set"] == [
        "enable-hierarchical-cache=true", "hicache-size=null", f"hicache-ratio={fit['value']:g}"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "option", "size"),
    [
        ("mem-fraction-static", "--gpu-headroom", "1GiB"),
        ("hicache-ratio", "--headroom", "1GiB"),
    ],
)
def test_a_smaller_headroom_holds_for_a_set_too(asked, key, option, size):
    given = (*CARD, *FREE, *RAM, "-o", "json")
    found = json.loads(asked.run(*given, "--fit", key, option, size).stdout)["fit"]
    assert any(f"without {option} 1.00 GiB demands more" in note for note in found["notes"])
    sets = [word for part in found["set"] for word in ("--set", part)]
    plain = json.loads(asked.run(*given, *sets).stdout)["verdict"]
    assert plain != "fits"
    assert json.loads(asked.run(*given, *sets, option, size).stdout)["verdict"] == "fits"
    larger = json.loads(asked.run(*given, "--fit", key, option, "32GiB").stdout)["fit"]
    assert not any("demands more" in note for note in larger["notes"])


def test_a_largest_value_of_what_is_not_known_names_the_easiest_figure(asked):
    """Where config.json gives the weights, the memory of a card is all that lacks."""
    asked.weighed()
    done = asked.run("--gpus", 1, *RAM, "--fit", "mem-fraction-static")
    assert done.exit_code == 1
    assert "no largest value" in done.stdout and "--gpu-total" in said(done)
    done = asked.run("--gpus", 1, "--gpu-total", 79.65, *RAM, "--fit", "mem-fraction-static")
    assert done.exit_code == 0 and "largest that fits" in done.stdout


def test_a_variant_without_effect_says_so(asked):
    """As --set says it; what is so of the description itself is told once, above."""
    asked.weighed()
    given = (*CARD, *RAM, "--compare", "hicache-ratio=3")
    found = json.loads(asked.run(*given, "-o", "json").stdout)["compare"]
    alone = json.loads(asked.run(*CARD, *RAM, "--set", "hicache-ratio=3", "-o", "json").stdout)
    (note,) = found[-1]["notes"]
    assert "has no effect" in note and note in alone["notes"]
    assert found[0]["notes"] == []
    text = said(asked.run(*given))
    assert text.count(" ".join(note.split())) == 1
    assert text.count("are estimated from config.json") == 1


def test_a_comparison_prints_what_its_json_has(asked):
    """A size that stays would go before the ratio."""
    asked.write({"tp-size": 1, "enable-hierarchical-cache": True, "hicache-size": 20})
    variants = json.loads(asked.run(*CARD, *FREE, *RAM, "--compare", "-o", "json").stdout)
    text = said(asked.run(*CARD, *FREE, *RAM, "--compare"))
    for one in variants["compare"]:
        assert " ".join(f"--set {part}" for part in one["set"]) in text
    tier = next(one for one in variants["compare"] if one["name"] == "host tier")
    assert "hicache-size=null" in tier["set"]


def test_nothing_is_set_that_is_not_described(asked):
    done = asked.run(*CARD, *FREE, *RAM, "--compare")
    assert "=null" not in done.stdout


# -- what a terminal still shows ------------------------------------------------------------------


@pytest.mark.parametrize("wish", [(), ("--compare",), ("--fit", "hicache-ratio"), ("--explain",)])
def test_the_verdict_stands_first_and_last(asked, wish):
    asked.write({"tp-size": 1, "mem-fraction-static": 0.95, "enable-hierarchical-cache": True})
    lines = asked.run(*CARD, *FREE, *RAM, *wish).stdout.splitlines()
    assert lines[0].startswith("q32: tight, ") and "of GPU memory is left" in lines[1]
    first = lines[: next(n for n, line in enumerate(lines) if line.startswith("model "))]
    assert lines[-len(first) :] == first


def test_what_does_not_fit_is_last_told_by_how_it_ends(asked):
    done = asked.run(*CARD, *FREE, *RAM, "--set", "mem-fraction-static=0.999")
    assert done.exit_code == 8 and done.stdout.count("q32: does not fit") == 1


# -- whose cache it is ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "caches", "words"),
    [
        ({"tp-size": 1}, 1, "that the cache can hold"),
        ({"tp-size": 2}, 1, "that the cache can hold"),
        (
            {"tp-size": 2, "dp-size": 2, "enable-dp-attention": True},
            2,
            "that the cache of one DP rank can hold; each of 2 has its own",
        ),
        ({"tp-size": 1, "dp-size": 2}, 2, "that the cache of one DP rank can hold; each of 2"),
    ],
)
def test_prefixes_are_of_one_cache(asked, flags, caches, words):
    asked.write({"enable-hierarchical-cache": True, "hicache-ratio": 1.5, **flags})
    args = ("--gpu-name", "H100", "--gpu-total", 79.65, "--ram-total", 900, *FREE)
    done = asked.run(*args)
    assert words in said(done)
    whole = json.loads(asked.run(*args, "-o", "json").stdout)
    assert whole["host"]["prefix_caches"] == caches
    ranks = whole["ranks"]
    assert f"{ranks} rank{'s' if ranks > 1 else ''}, pinned" in said(done)
