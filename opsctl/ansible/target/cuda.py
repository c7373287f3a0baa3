"""The role `cuda`: what nvidia-smi says. The controller judges it: it knows the engines' needs."""

from __future__ import annotations

from typing import Any, Dict

from opsctl.onhost.gpus import report


def main(args: Dict[str, Any]) -> Dict[str, Any]:
    """{"gpus", "driver", "cuda", "gpu_error"}, as `collect` tells them; no arguments."""
    return report()
