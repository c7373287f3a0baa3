"""What a rehearsal host shows: memory, GPUs, model files, and the wheel that it installs."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from opsctl.onhost import hostfacts, modelfiles
from opsctl.rehearsal import model_files, nvidia_smi, wheel
from opsctl.rehearsal.holdings import card
from opsctl.rehearsal.machine import Held, gpus, meminfo
from opsctl.rehearsal.scenario import packaged, read

MACHINE = read(packaged()["reference"]).machine
RANKS = [Held(100 + n, n, 88569, 43721606 + 3670016) for n in range(8)]


def test_memory_of_the_reference_host_after_the_start() -> None:
    found = hostfacts.parse_meminfo(meminfo(MACHINE, RANKS))
    assert found["total"] == 471020339 * 1024
    assert found["available"] == 82418073 * 1024
    assert found["swap_total"] == 0
    used = found["total"] - found["available"]
    assert (found["total"] >> 30, used >> 30, found["available"] >> 30) == (449, 370, 78)


def test_memory_comes_back_and_a_stranger_takes_it() -> None:
    assert f"MemAvailable:   {MACHINE['mem_available_kb']} kB" in meminfo(MACHINE, [])
    robbed = [*RANKS[:1], Held(1, 1, 0, 0, at_most_kb=48600000)]
    assert "MemAvailable:   48600000 kB" in meminfo(MACHINE, robbed)


def test_the_real_parsers_read_the_stand_in_nvidia_smi() -> None:
    box = gpus(MACHINE, RANKS)
    answer, code = nvidia_smi.answer(hostfacts.GPU_QUERY[1:], box, "now")
    found = hostfacts.parse_gpus(answer)
    assert code == 0
    assert [g["memory_total"] for g in found] == [97887 << 20] * 8
    assert [g["memory_used"] for g in found] == [88569 << 20] * 8
    assert {g["state"] for g in found} == {"ok"}
    apps, _ = nvidia_smi.answer(hostfacts.PROCESS_QUERY[1:], box, "now")
    assert len(apps.splitlines()) == 8
    table = hostfacts.parse_gpu_table(nvidia_smi.answer([], box, "now")[0])
    assert table["driver"] == MACHINE["driver"]
    assert table["cuda"] == "13.0"


def test_the_table_is_a_rectangle_and_says_what_it_is() -> None:
    text, _ = nvidia_smi.answer([], gpus(MACHINE, RANKS), "now")
    rows = [line for line in text.splitlines() if line[:1] in "|+" and line]
    assert {len(row) for row in rows} == {91}
    assert "REHEARSAL" in text
    assert "REHEARSAL" in nvidia_smi.answer(["--version"], gpus(MACHINE, []), "")[0]


@pytest.mark.parametrize(
    ("argv", "answer"),
    [
        ("--query-gpu=index,memory.used --format=csv,noheader -i 3", "3, 88569 MiB\n"),
        ("--query-gpu=count --format=csv,noheader,nounits --id=0,1", "8\n8\n"),
        ("--query-gpu=memory.total --format=csv -i 0", "memory.total [MiB]\n97887 MiB\n"),
    ],
)
def test_queries(argv: str, answer: str) -> None:
    assert nvidia_smi.answer(argv.split(), gpus(MACHINE, RANKS), "") == (answer, 0)


def test_an_unknown_field_is_refused_as_the_real_one_does() -> None:
    text, code = nvidia_smi.answer(["--query-gpu=nonsense", "--format=csv"], gpus(MACHINE, []), "")
    assert (text, code) == ('Field "nonsense" is not a valid field to query.\n', 2)


def test_model_folders_have_the_real_size_and_geometry(tmp_path: Path) -> None:
    model_files.make(tmp_path, model_files.KIMI, model_files.SIZE, 64)
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert sum(s.stat().st_size for s in shards) == 547_000_000_000
    assert sum(s.stat().st_blocks for s in shards) * 512 < 16 << 20  # sparse
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {s.name for s in shards}
    heads = modelfiles.heads(tmp_path, tmp_path)
    assert (heads.cut, heads.foreign) == ([], [])  # a start is refused for what is no weights
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    assert (text["kv_lora_rank"] + text["qk_rope_head_dim"]) * text[
        "num_hidden_layers"
    ] * 2 == 70272


def test_the_wheel_is_the_same_for_the_same_sources_and_says_what_it_is(tmp_path: Path) -> None:
    first, second = (wheel.build("0.5.9", tmp_path / name) for name in "ab")
    assert first.path.read_bytes() == second.path.read_bytes()
    digest = hashlib.sha256(first.path.read_bytes()).hexdigest()
    assert first.requirements.read_text() == f"sglang==0.5.9+rehearsal --hash=sha256:{digest}\n"
    with zipfile.ZipFile(first.path) as archive:
        names = archive.namelist()
        summary = archive.read("sglang-0.5.9+rehearsal.dist-info/METADATA").decode()
        record = archive.read("sglang-0.5.9+rehearsal.dist-info/RECORD").decode()
    assert "NOT SGLang" in summary
    assert [line.split(",")[0] for line in record.splitlines()] == names
    assert "opsctl/engine/data/0.5.9.json" in names
    assert "opsctl/rehearsal/scenarios/odd-rank.toml" in names


@pytest.mark.parametrize(
    ("gpu", "visible", "wanted"),
    [(0, "", 0), (0, "1", 1), (1, "3, 5", 5), (2, "3,5", 2), (0, "GPU-1b2c", 0), (None, "1", None)],
)
def test_which_card_a_rank_holds(gpu: int | None, visible: str, wanted: int | None) -> None:
    assert card(gpu, visible) == wanted
