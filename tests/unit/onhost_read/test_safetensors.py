"""Headers of safetensors files: what they tell, and files that are damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost import modelfiles, safetensors
from opsctl.onhost.safetensors import Damaged


def tensor(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def write(path: Path, header: Any, size: int) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + size)  # sparse: no tensor is ever read


EXPERTS = {
    "__metadata__": {"format": "pt"},
    **{
        f"model.layers.{layer}.mlp.experts.{expert}.{name}.weight_packed": tensor(
            "I32", [2048, 896] if name == "w1" else [7168, 256], 0, 7_340_032
        )
        for layer in (3, 4)
        for expert in range(5)
        for name in ("w1", "w2")
    },
    "model.norm.weight": tensor("BF16", [7168], 0, 14_336),
}


def test_tensors_are_grouped_by_name_type_and_shape(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", EXPERTS, 7_340_032)
    name = "model.layers.9.mlp.experts.1.w1.weight_packed"
    write(tmp_path / "b.safetensors", {name: tensor("I32", [2048, 896], 0, 7_340_032)}, 7_340_032)
    found = safetensors.read([tmp_path / "a.safetensors", tmp_path / "b.safetensors"])
    w1, w2, norm = found["by"]
    assert w1 == {
        "name": "model.layers.#.mlp.experts.#.w1.weight_packed",  # a number within a word stays
        "dtype": "I32",
        "shape": [2048, 896],
        "layers": [3, 9],
        "count": 11,
        "bytes": 11 * 7_340_032,
    }
    assert (w2["name"], w2["layers"], w2["count"]) == (
        "model.layers.#.mlp.experts.#.w2.weight_packed", [3, 4], 10,
    )  # fmt: skip
    assert (norm["layers"], norm["shape"]) == (None, [7168])
    assert (found["count"], found["bytes"]) == (22, 21 * 7_340_032 + 14_336)


GOOD = json.dumps({"x": tensor("F32", [2], 0, 8)}).encode()
DAMAGED: list[tuple[bytes, str]] = [
    (b"", "no sane length"),
    (b"\x10\0\0", "no sane length"),
    (struct.pack("<Q", 1 << 40) + b"{}", "no sane length"),
    (struct.pack("<Q", 0), "no sane length"),
    (struct.pack("<Q", len(GOOD)) + GOOD[:20], "cut off within its header"),
    (struct.pack("<Q", len(GOOD)) + GOOD + b"1234", "cut off: "),
    (struct.pack("<Q", 4) + b"{x:1" + bytes(9), "no JSON"),
    (struct.pack("<Q", 4) + b"\xff\xfe\xfd\xfc", "no JSON"),
    (struct.pack("<Q", 4) + b"[12]", "no JSON object"),
    (struct.pack("<Q", 9) + b'{"x": 12}', "in no known way"),
    (struct.pack("<Q", 9) + b'{"x": {}}', "in no known way"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n", "pointer of git-lfs"),
]


@pytest.mark.parametrize(("content", "why"), DAMAGED)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "model-00001.safetensors"
    path.write_bytes(content)
    with pytest.raises(Damaged, match="model-00001.safetensors.*" + why):
        safetensors.read([path])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match=r"gone\.safetensors cannot be read"):
        safetensors.read([tmp_path / "gone.safetensors"])


# -- a folder --------------------------------------------------------------------------------------


def model(folder: Path, names: list[str], indexed: list[str] | None = None) -> Path:
    folder.mkdir()
    for name in names:
        write(folder / name, {f"{name}.w": tensor("F32", [2], 0, 8)}, 8)
    if indexed is not None:
        weight_map = {f"{name}.w": name for name in indexed}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def test_only_what_the_index_names_is_loaded(tmp_path: Path) -> None:
    shards = ["model-1.safetensors", "model-2.safetensors"]
    found = modelfiles.folder(
        model(tmp_path / "m", [*shards, "consolidated.safetensors"], shards), tmp_path
    )
    assert [one["name"] for one in found["tensors"]["by"]] == [f"{name}.w" for name in shards]
    assert found["weights_bytes"] == sum(
        one["bytes"] for one in found["files"] if one["name"] in shards
    )


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    found = modelfiles.folder(
        model(tmp_path / "m", ["a.safetensors"], ["a.safetensors", "b.safetensors"]), tmp_path
    )
    assert found["tensors"] is None
    assert found["tensors_reason"] == "b.safetensors is named by the index and is not there"


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["x.gguf"], ".gguf files tell no shapes"),
        (["x.bin", "y.pt"], ".bin, .pt files tell no shapes"),
        ([], "there are no weight files"),
    ],
)
def test_other_files_tell_no_shapes(tmp_path: Path, names: list[str], reason: str) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"12345")
    found = modelfiles.folder(tmp_path, tmp_path / "root")
    assert (found["tensors"], found["tensors_reason"]) == (None, reason)
    assert found["weights_bytes"] == 5 * len(names)


def test_what_was_read_is_kept_until_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model(tmp_path / "m", ["a.safetensors"])
    first = modelfiles.folder(folder, tmp_path / "root")["tensors"]

    def refuse(paths: Any) -> Any:
        raise AssertionError("read again")

    with monkeypatch.context() as patched:
        patched.setattr(safetensors, "read", refuse)
        assert modelfiles.folder(folder, tmp_path / "root")["tensors"] == first
    write(folder / "a.safetensors", {"other.w": tensor("F32", [4], 0, 16)}, 16)
    again = modelfiles.folder(folder, tmp_path / "root")["tensors"]
    assert again["by"][0]["name"] == "other.w"


def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    found = modelfiles.folder(tmp_path / "gone", tmp_path)
    assert (found["exists"], found["files"], found["cached"]) == (False, [], None)
    assert found["storage"] is None
