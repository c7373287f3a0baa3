"""What people already run → our description, with a report. Pure: texts and values in and out."""

from opsctl.importing.describe import Asked
from opsctl.importing.model import Container, Imported, Mount, Note, Risk
from opsctl.importing.process import from_process
from opsctl.importing.text import KINDS, from_text

__all__ = [
    "KINDS",
    "Asked",
    "Container",
    "Imported",
    "Mount",
    "Note",
    "Risk",
    "from_process",
    "from_text",
]
