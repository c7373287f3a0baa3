"""What is told at 80 columns: nothing is cut, no line is longer, equal ranks are one row."""

import copy
import json
import re
from pathlib import Path

import pytest

from opsctl.cli.console import plain
from opsctl.errors import Unreachable
from opsctl.forecast.columns import LEFT, columns
from opsctl.forecast.differences import explained
from opsctl.views import fold, hosts, memory, status

REFERENCE = json.loads((Path(__file__).parent / "collect-reference.json").read_text())
GIB = 1 << 30
CUT = "…\n"


def answer():
    said = copy.deepcopy(REFERENCE)
    service = said["services"][0]
    ranks = service["start"]["ranks"].values()
    for n, rank in enumerate(ranks):
        rank["pid"] = 100 + n
    service["processes"] = [
        {"pid": 100 + n, "comm": "sglang", "rss": 46 * GIB + n * (1 << 20)} for n in range(8)
    ]
    said["gpu_processes"] = [
        {"gpu": n, "pid": 100 + n, "memory": 87 * GIB, "comm": "sglang"} for n in range(8)
    ]
    return said


def drawn(said, width=80):
    told = [(one := columns(said, service), explained(one, said)) for service in said["services"]]
    return plain(memory.drawing({"h1": told}), width)


def fits(text, width=80):
    return all(len(line) <= width for line in text.splitlines()) and CUT not in text


def row(text, name):
    return next(line for line in text.splitlines() if line.startswith(name))


def test_ranks_that_are_alike_are_one_row_each_figure():
    text = drawn(answer())
    assert fits(text)
    assert "each of TP0 … TP7" in text and row(text, "GPU").endswith("0 … 7")
    assert text.count("44.77 GB") < 4
    assert row(text, "KV tokens").split()[2:] == ["159,277", "159,277", "–"]
    assert "46.00 to 46.01 GiB" in row(text, "process")  # a span, not eight rows


def test_a_rank_that_differs_has_a_row_of_its_own():
    said = answer()
    said["services"][0]["start"]["ranks"]["TP3"]["kv_tokens"] = 142000
    said["services"][0]["processes"][5]["rss"] = 20 * GIB
    text = drawn(said)
    assert fits(text)
    assert "the other 7" in row(text, "KV tokens")
    [odd] = [line for line in text.splitlines() if "142,000" in line]
    assert odd.split()[0] == "TP3"
    [little] = [line for line in text.splitlines() if "20.00 GiB" in line]
    assert little.split()[0] == "TP5"


def test_ram_that_does_not_suffice_is_no_negative_rest():
    said = answer()
    said["services"][0]["manifest"]["expect"]["available_after"] = -3 * GIB
    text = drawn(said)
    assert "3.00 GiB too little" in row(text, LEFT) and "-3" not in text


def test_a_unit_of_other_hands_that_serves_is_not_called_unfinished():
    said = answer()
    said["services"][0] |= {"manifest": {"was_active": True}, "checks": []}
    said["services"][0]["release"] = {"running": "0", "confirmed": None}
    text = drawn(said)
    assert "not over" not in text and "opsctl did not write what runs" in text
    assert text.startswith("h1 kimi: not by opsctl, 8 of 8 ranks, not judged\n")


def test_a_service_that_was_taken_over_is_not_called_unfinished():
    said = answer()
    said["services"][0] |= {"checks": [], "taken_over": {"later": []}}
    assert "not over" not in drawn(said) and "taken over as it ran" in drawn(said)


@pytest.mark.parametrize("width", [80, 100])
def test_the_tables_of_status_and_hosts_fold_and_lose_nothing(width):
    said = {
        "h1": answer(),
        "gpu-host-with-a-long-name": Unreachable("timed out after three tries " * 5),
    }
    for table in (status.table(said), hosts.table(said, {"h1": "10.0.0.1"})):
        text = plain(table, width)
        assert fits(text, width)
    text = plain(status.table({"h1": answer()}), 80)
    assert text.splitlines()[0].split() == list(status.COLUMNS[:6])
    for figure in ("3f9a3f9a3f9a confirmed", "KV tokens 159,277", "8 × 44.77 GB", "78.60 GiB"):
        assert figure in text


def test_a_row_that_fits_stays_a_table():
    assert plain(fold.Listing(("A", "B"), [("1", "2")], head=1), 80) == "A  B\n1  2\n"
    assert plain(fold.Listing(("A", "B"), [("1", "2 " * 60)], head=1), 80).startswith("A\n1\n  b 2")


def test_a_paragraph_hangs_and_a_short_one_is_left_alone():
    text = plain(fold.Hanging("  ! warn x: " + "word " * 30), 40)
    first, *rest = text.splitlines()
    assert first.startswith("  ! warn") and all(line.startswith("    word") for line in rest)
    assert fits(text, 40) and text.count("word") == 30
    assert plain(fold.Hanging("x" * 40), 40) == "x" * 40 + "\n"


def test_a_word_that_is_longer_than_the_line_is_not_cut():
    text = plain(fold.Hanging("-X-OpsctlRelease=" + "a1" * 60), 80)
    assert fits(text) and text.replace("\n", "").replace(" ", "").endswith("a1" * 60)


def test_ranks_are_named_shortly_only_where_none_is_missing():
    assert memory.of_ranks(["TP0", "TP1", "TP2"]) == "TP0 … TP2"
    assert memory.of_ranks(["TP0", "TP2", "TP3"]) == "TP0, TP2, TP3"
    assert memory.of_ranks(["TP1"]) == "TP1"


def test_text_in_columns_goes_on_below_its_last_column():
    line = "  KV tokens  159,277 logged  " + "measured " * 9
    first, *rest = plain(fold.Hanging(line), 60).splitlines()
    place = first.index("measured")
    assert rest and all(more.index("measured") == place and more[:place] == " " * place
                        for more in rest)  # fmt: skip


def test_advisories_of_one_release_are_told_once_of_all_hosts():
    from opsctl.engine.advisories import Advisory
    from opsctl.views import verify

    known = Advisory("x-goes-wrong", "warn", "it goes wrong", "it stops", "do this", "ref", True)
    said = {host: answer() for host in ("h1", "h2", "h3")}
    for one in said.values():
        one["services"][0]["advisories"] = [known]
    text = plain(verify.report(said), 80)
    assert text.count("x-goes-wrong") == 1 and text.count("→ do this") == 1
    assert text.count("the same as on h1 kimi: advisories") == 2


def test_values_of_a_description_are_broken_before_keys_and_nothing_is_lost():
    from opsctl.spec import Shown
    from opsctl.views import config

    path = "/srv/wheels/of-the-mirror/requirements-0.5.9-and-more.txt"
    key = "flags.speculative-draft-model-path"
    text = plain(config.table([Shown("h1", "kimi", key, path, "x.yml:1")], origin=False), 80)
    assert fits(text) and key in text
    assert path in re.sub(r"\s*\n\s+", "", text)
    text = plain(
        config.table([Shown("h1", "kimi", key, 4, "group_vars/kimi.yml:24")], origin=True), 70
    )
    assert fits(text) and "\n  origin group_vars/kimi.yml:24\n" in text


@pytest.mark.parametrize(("said", "lines"), [("80", 3), ("", 2), ("no", 2), ("0", 2)])
def test_a_pipe_is_as_wide_as_columns_says_and_else_endless(monkeypatch, capsys, said, lines):
    from opsctl.cli import console
    from opsctl.cli.frame import Settings

    monkeypatch.setenv("COLUMNS", said)
    console.show(fold.Listing(("A", "B"), [("1", "word " * 30)], head=1), Settings())
    told = capsys.readouterr().out
    assert len(told.splitlines()) > 3 if lines == 3 else len(told.splitlines()) == 2
    assert said != "80" or fits(told)
