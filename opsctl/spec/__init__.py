"""The description: its schema, the merge of a host's own changes, and the messages."""

from opsctl.spec.load import check, load, together
from opsctl.spec.show import Shown, notes, show, validate

__all__ = ["Shown", "check", "load", "notes", "show", "together", "validate"]
