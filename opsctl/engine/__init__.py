"""SGLang per version: which flags it has, what they take, which ranks they make. Pure."""

from opsctl.engine.catalogue import Catalogue, catalogue, versions
from opsctl.engine.flag import Flag
from opsctl.engine.renames import having

__all__ = ["Catalogue", "Flag", "catalogue", "having", "versions"]
