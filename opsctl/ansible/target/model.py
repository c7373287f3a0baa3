"""The role `model`: are the files of a model all there? Sizes only; nothing is hashed."""

from __future__ import annotations

from typing import Any, Dict, List

from opsctl.onhost.modelcheck import look


def main(args: Dict[str, Any]) -> Dict[str, Any]:
    """`args`: folders [{"path", "size" or null, "what"}]."""
    problems: List[str] = []
    found = {}
    for folder in args["folders"]:
        size, wrong = look(folder["path"], folder.get("size"))
        found[folder["path"]] = size
        problems += [f"{folder['what']} {folder['path']}: {text}" for text in wrong]
    return {"changed": False, "diff": [], "problems": problems, "bytes": found}
