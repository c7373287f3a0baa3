"""The scenario files: whole, honest about their figures, and strict about what they do not know."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

import opsctl.rehearsal
from opsctl.rehearsal import cmdline
from opsctl.rehearsal.ranks import ranks
from opsctl.rehearsal.scenario import FAULTS, ScenarioError, packaged, parse, read
from opsctl.rehearsal.timeline import Start, steps

REFERENCE = [
    *("--model-path=/srv/models/Kimi-K2.5", "--served-model-name=kimi-k2.5", "--tp-size=8"),
    *("--mem-fraction-static=0.88", "--speculative-algorithm=EAGLE3", "--speculative-eagle-topk=1"),
    *("--speculative-draft-model-path=/srv/models/draft", "--enable-hierarchical-cache"),
]


def flags(*more: str) -> dict[str, object]:
    return cmdline.parse("0.5.9", [*REFERENCE, *more])


@pytest.mark.parametrize("name", packaged())
def test_every_packaged_file_loads_under_its_own_name(name: str) -> None:
    assert read(packaged()[name]).name == name


def test_there_is_one_file_for_each_fault() -> None:
    faults = [s.fault.kind for s in map(read, packaged().values()) if s.fault]
    assert sorted(faults) == sorted(FAULTS)
    assert len(FAULTS) == 8


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_leaves_the_release_before_it_alone(name: str) -> None:
    fault = read(packaged()[name]).active_fault
    assert fault(flags("--hicache-ratio=4.0")) is not None
    assert fault(flags("--hicache-ratio=2.0")) is None
    assert fault(flags()) is None  # the default ratio of 0.5.9 is 2.0


def test_figures_that_no_log_told_are_marked() -> None:
    """Each figure of the reference's tables has its source on its line."""
    text = packaged()["reference"].read_text()
    tables = text[text.index("[[gpu]]") :]
    lines = [line for line in tables.splitlines() if re.search(r'"[\d.]+"|= \d', line)]
    plain = [line for line in lines if not line.startswith("when") and "#" not in line]
    # Follow from the lines beside them, which say so.
    assert [line.split()[0] for line in plain] == [
        *("free_before", "free_after", "free_pool", "free_graphs", "gb", "kb")
    ]


def test_a_ratio_without_figures_is_refused_by_name() -> None:
    scenario = read(packaged()["reference"])
    asked = flags("--hicache-ratio=3.0")
    start = Start(scenario, asked, None)
    with pytest.raises(ScenarioError) as refused:
        steps(start, ranks(asked)[0])
    assert str(refused.value) == (
        "scenario reference plays hicache-ratio 4.0 or 2.0, not 3.0; "
        "it has figures of real starts only"
    )


def test_what_the_readme_and_the_example_set_for_one_host_can_be_played() -> None:
    """A newcomer tries them in the lab, and must not end in a restore."""
    root = Path(__file__).resolve().parents[3]
    texts = {
        path: (root / path).read_text()
        for path in ("README.md", "inventory/example/host_vars/gpu-02.yml",
                     "inventory/example/group_vars/kimi.yml")
    }  # fmt: skip
    for path, text in texts.items():
        ratios = re.findall(r"hicache-ratio: ([\d.]+)", text)
        assert ratios, path
        for ratio in ratios:
            asked = flags(f"--hicache-ratio={ratio}")
            assert steps(Start(read(packaged()["reference"]), asked, None), ranks(asked)[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fault": {"kind": "meteor"}}, "unknown fault 'meteor'; allowed: silent-rank"),
        ({"clock": 0}, "clock must be above 0"),
        ({"gpu": None}, "the key 'gpu' is missing"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(change: dict[str, object], words: str) -> None:
    tree = {**tomllib.loads(packaged()["reference"].read_text()), **change}
    tree = {name: value for name, value in tree.items() if value is not None}
    with pytest.raises(ScenarioError, match=words):
        parse(tree, "x.toml")


def test_nothing_here_computes_figures_with_our_forecast() -> None:
    for path in Path(opsctl.rehearsal.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            ours = {n.split(".")[1] for n in names if n.startswith("opsctl.")}
            assert ours <= {"engine", "rehearsal"}, f"{path.name} imports {ours}"
