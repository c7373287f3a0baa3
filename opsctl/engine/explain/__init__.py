"""What a flag is, in our own words, and what became of it from release to release. Pure."""

from opsctl.engine.explain.history import Span, history
from opsctl.engine.explain.nearest import nearest
from opsctl.engine.explain.texts import Text, text, texts

__all__ = ["Span", "Text", "history", "nearest", "text", "texts"]
