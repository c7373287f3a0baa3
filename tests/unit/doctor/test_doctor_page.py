"""docs/doctor.md says what doctor can find."""

from __future__ import annotations

from pathlib import Path

from opsctl.onhost.doctor.examine import FAULTS
from opsctl.paths import share
from opsctl.views import doctorpage


def test_the_page_is_as_it_would_be_made() -> None:
    path = Path(share()) / doctorpage.PAGE
    assert path.read_text("utf-8") == doctorpage.page(), "run: python -m opsctl.views.doctorpage"


def test_every_fault_is_on_it_once() -> None:
    text = doctorpage.page()
    assert {name: text.count(f"(`{name}`)") for name in FAULTS} == dict.fromkeys(FAULTS, 1)
