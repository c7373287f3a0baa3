"""Where journald keeps the journal, by its configuration as systemd reads it; and the clock."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost.doctor import examine, keeping, look
from tests.unit.doctor import hosts

ETC, RUN, USR = (f"{folder}/systemd/journald.conf" for folder in ("etc", "run", "usr/lib"))
VOLATILE, KEPT = "[Journal]\nStorage=volatile\n", "[Journal]\nStorage=persistent\n"


def wrote(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "storage", "file"),
    [
        ({}, "auto", ""),
        ({ETC: "[Journal]\n#Storage=none\n"}, "auto", ""),
        ({ETC: "[Journal]\n Storage = none \n"}, "none",
         "/etc/systemd/journald.conf"),
        # of the file itself the first folder's alone is read
        ({ETC: "", USR: VOLATILE}, "auto", ""),
        ({USR: VOLATILE}, "volatile", "/usr/lib/systemd/journald.conf"),
        # drop-ins by name, from whichever folder
        ({ETC: KEPT, f"{ETC}.d/x.conf": VOLATILE},
         "volatile", "/etc/systemd/journald.conf.d/x.conf"),
        ({f"{ETC}.d/a.conf": VOLATILE, f"{RUN}.d/b.conf": KEPT},
         "persistent", "/run/systemd/journald.conf.d/b.conf"),
        ({f"{USR}.d/b.conf": VOLATILE, f"{ETC}.d/b.conf": ""},
         "auto", ""),
        ({f"{ETC}.d/x.conf": VOLATILE,
          f"{ETC}.d/x.persistent.conf": KEPT},
         "persistent", "/etc/systemd/journald.conf.d/x.persistent.conf"),
        # no word of journald's, another section, another ending
        ({f"{ETC}.d/x.conf": "[Journal]\nStorage=disk\n"}, "auto", ""),
        ({f"{ETC}.d/x.conf": "[Upload]\nStorage=none\n"}, "auto", ""),
        ({f"{ETC}.d/x.off": VOLATILE}, "auto", ""),
        ({f"{ETC}.d/x.conf": VOLATILE + "Storage=none\n"}, "none",
         "/etc/systemd/journald.conf.d/x.conf"),
    ],
)  # fmt: skip
def test_the_configuration_is_read_as_journald_reads_it(
    tmp_path: Path, files: dict[str, str], storage: str, file: str
) -> None:
    told = keeping.journal(wrote(tmp_path, files))
    assert (told["storage"], told["file"]) == (storage, file)


def test_a_dropin_that_is_masked_is_none(tmp_path: Path) -> None:
    wrote(tmp_path, {f"{USR}.d/x.conf": VOLATILE})
    folder = tmp_path / "etc/systemd/journald.conf.d"
    folder.mkdir(parents=True)
    (folder / "x.conf").symlink_to("/dev/null")
    assert keeping.journal(tmp_path)["storage"] == "auto"


def test_the_folder_is_that_of_this_machine(tmp_path: Path) -> None:
    wrote(tmp_path, {"etc/machine-id": "abc\n", "var/log/journal/other/system.journal": ""})
    assert not keeping.journal(tmp_path)["folder"]
    wrote(tmp_path, {"var/log/journal/abc/system.journal": ""})
    assert keeping.journal(tmp_path)["folder"]


@pytest.mark.parametrize(
    "file",
    [
        "etc/systemd/journald.conf",
        "usr/lib/systemd/journald.conf",
        "etc/systemd/journald.conf.d/x.conf",
        "run/systemd/journald.conf.d/zz-last.conf",
        "usr/lib/systemd/journald.conf.d/00-image.conf",
    ],
)
def test_what_doctor_names_has_the_last_word(tmp_path: Path, file: str) -> None:
    """The drop-in of its command, put beside what forbids it."""
    seen = hosts.reference()
    seen["journal"] |= keeping.journal(wrote(tmp_path, {file: VOLATILE})) | {"folder": True}
    (told,) = [one for one in examine.judge(seen) if one.fault]
    assert told.fault == "journal-storage"
    written = re.search(r"printf '(.*?)' > /(\S+)", told.mend)
    assert written
    wrote(tmp_path, {written[2]: written[1].replace("\\n", "\n")})
    assert keeping.journal(tmp_path)["storage"] == "persistent"


class Kernel:
    def __init__(self, answer: int, error: int) -> None:
        self._answer, self._error = answer, error

    def adjtimex(self, place: Any) -> int:
        told = ctypes.cast(place, ctypes.POINTER(keeping._Timex)).contents
        assert told.modes == 0  # it must set nothing
        told.maxerror = self._error
        return self._answer


@pytest.mark.parametrize(
    ("answer", "error", "kept"),
    [(0, 500_000, True), (0, 16_000_000, False), (5, 16_000_000, False), (-1, 0, None)],
)
def test_the_kernel_tells_whether_the_clock_is_kept(
    answer: int, error: int, kept: bool | None
) -> None:
    assert keeping.synchronised(Kernel(answer, error)) is kept


def test_a_kernel_that_does_not_tell_is_no_fault() -> None:
    seen = hosts.reference()
    seen["synchronised"] = None
    (told,) = [one for one in examine.judge(seen) if one.status != "pass"]
    assert (told.check, told.status) == ("clock", "unknown")


def test_the_real_kernel_answers() -> None:
    assert keeping.synchronised() in (True, False, None)
    assert keeping.synchronised(object()) is None


def test_doctor_asks_nobody_whom_a_question_starts() -> None:
    """D-Bus would start systemd-timedated, hostnamed, localed for these."""
    programs = {argv[0] for argv in look.COMMANDS.values()}
    assert not programs & {"timedatectl", "hostnamectl", "localectl", "busctl", "dbus-send"}
