"""The command line of a released SGLang, read from its source without importing any of it."""

from opsctl.engine.source.entries import UnknownType, entries
from opsctl.engine.source.options import read
from opsctl.engine.source.package import Package, Unreadable

__all__ = ["Package", "UnknownType", "Unreadable", "entries", "read"]
