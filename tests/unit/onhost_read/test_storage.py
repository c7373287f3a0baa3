"""Where a folder lies, from mountinfo and sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsctl.onhost import factsverb, modelfiles, storage

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
40 27 0:40 / /srv rw,relatime shared:2 master:1 - nfs4 filer:/srv rw,vers=4.2
41 40 253:0 / /srv/my\\040models rw,relatime - xfs /dev/mapper/vg-models rw
42 27 0:44 / /tmp rw - tmpfs tmpfs rw
43 40 0:50 / /srv/my\\040models rw - fuse.juicefs JuiceFS:x rw
"""


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/home/x", ("ext4", "/dev/nvme0n1p2")),
        ("/srv", ("nfs4", "filer:/srv")),
        ("/srvx", ("ext4", "/dev/nvme0n1p2")),
        ("/srv/other/m", ("nfs4", "filer:/srv")),
        ("/srv/my models/m", ("fuse.juicefs", "JuiceFS:x")),  # mounted over the one before
        ("/tmp/m", ("tmpfs", "tmpfs")),
    ],
)
def test_the_mount_that_holds_a_path(path: str, wanted: tuple[str, str]) -> None:
    assert storage.mount_of(MOUNTS, path) == wanted


def sysfs(root: Path) -> Path:
    """A disk with a partition, an NVMe disk, one over TCP, and a volume on an array of two."""
    disks = {"sda": "1", "sdb": "0", "sdc": "1", "nvme0n1": "0", "nvme1n1": "0", "dm-0": "0",
             "md0": "0", "vda": "1"}  # fmt: skip
    for name, turns in disks.items():
        folder = root / "devices" / name
        (folder / "queue").mkdir(parents=True)
        (folder / "queue/rotational").write_text(turns + "\n")
        (root / "class/block").mkdir(parents=True, exist_ok=True)
        (root / "class/block" / name).symlink_to(folder)
    part = root / "devices/sda/sda1"
    part.mkdir()
    (part / "partition").write_text("1\n")
    (root / "class/block/sda1").symlink_to(part)
    (root / "dev/block").mkdir(parents=True)
    for number, name in {"8:1": "sda/sda1", "259:0": "nvme0n1", "253:0": "dm-0"}.items():
        (root / "dev/block" / number).symlink_to(root / "devices" / name)
    for name, below in {"dm-0": ["md0"], "md0": ["sdb", "sdc"]}.items():
        (root / "devices" / name / "slaves").mkdir()
        for slave in below:
            (root / "devices" / name / "slaves" / slave).symlink_to(root / "devices" / slave)
    for name, transport in {"nvme0": "pcie", "nvme1": "tcp"}.items():
        (root / "class/nvme" / name).mkdir(parents=True)
        (root / "class/nvme" / name / "transport").write_text(transport + "\n")
    return root


@pytest.mark.parametrize(
    ("number", "names", "kind"),
    [
        ((8, 1), ["sda"], "rotational"),
        ((259, 0), ["nvme0n1"], "nvme"),
        ((253, 0), ["dm-0", "sdb", "sdc"], "rotational"),  # as slow as the slowest disk below
        ((9, 9), [], "unknown"),
        (None, [], "unknown"),
    ],
)
def test_the_disks_below_a_file_system(
    tmp_path: Path, number: tuple[int, int] | None, names: list[str], kind: str
) -> None:
    root = str(sysfs(tmp_path))
    assert storage.devices(number, "", root) == names
    assert storage.kind("ext4", names, root) == kind


KINDS = [
    ("nfs4", [], "network"),
    ("fuse.s3fs", [], "network"),
    ("tmpfs", [], "memory"),
    ("xfs", ["nvme1n1"], "network"),  # NVMe over TCP
    ("xfs", ["vda"], "virtual"),  # says that it turns, whatever it is
    ("xfs", ["rbd0"], "network"),
    ("xfs", ["sdb"], "ssd"),
    ("zfs", [], "unknown"),
]


@pytest.mark.parametrize(("filesystem", "names", "kind"), KINDS)
def test_kinds(tmp_path: Path, filesystem: str, names: list[str], kind: str) -> None:
    assert storage.kind(filesystem, names, str(sysfs(tmp_path))) == kind


def test_a_real_folder_has_a_file_system(tmp_path: Path) -> None:
    found = storage.of(tmp_path)
    assert found["filesystem"] and found["kind"]


def test_what_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(argv: list[str], limit: float) -> dict[str, str]:
        asked.append(argv[-1])
        return {"state": storage.HUNG if argv[-1].startswith("/gone") else "ok"}

    monkeypatch.setattr(storage, "_silent", {})
    monkeypatch.setattr(storage, "ask", ask)
    assert list(storage.silent(["/gone/m", "/srv/m", "/gone/m"])) == ["/gone/m"]
    assert sorted(asked) == ["/gone/m", "/srv/m"]
    asked.clear()
    assert list(storage.silent(["/gone/m/draft", "/gone/m", "/srv/m"])) == [
        "/gone/m/draft", "/gone/m"
    ]  # fmt: skip
    assert asked == ["/srv/m"]
    monkeypatch.setattr(storage, "_silent", dict.fromkeys(storage._silent, 0.0))  # long ago
    asked.clear()
    assert list(storage.silent(["/gone/m"])) == asked == ["/gone/m"]


def test_facts_do_not_read_a_folder_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They waited for it until the call's limit, and nothing was told."""
    (tmp_path / "config.json").write_text("{}")
    assert factsverb._folder(str(tmp_path), tmp_path)["texts"] == {"config.json": "{}"}
    monkeypatch.setattr(storage, "silent", lambda paths: dict.fromkeys(paths, "nfs4 nas:/m"))
    found = factsverb._folder(str(tmp_path), tmp_path)
    assert found.keys() > modelfiles.folder(tmp_path, tmp_path).keys()
    assert found["silent"] == f"{tmp_path} does not answer within 5 s (nfs4 nas:/m)"
    assert (found["exists"], found["texts"]) == (False, {})
