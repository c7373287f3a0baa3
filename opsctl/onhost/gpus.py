"""GPUs, driver and CUDA, as nvidia-smi tells them; it is asked twice at once, since it is slow."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict

from opsctl.onhost.gpubus import completed, on_bus, pci
from opsctl.onhost.hostfacts import gpus, parse_gpu_table, run


def report() -> Dict[str, Any]:
    """{"gpus", "driver", "cuda", "gpu_error"}; all empty where there is no nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return {"gpus": [], "driver": "", "cuda": "", "gpu_error": ""}
    with ThreadPoolExecutor(1) as pool:
        listed = pool.submit(gpus)
        table = parse_gpu_table(run(["nvidia-smi"]))
    return {
        "gpus": completed(listed.result() or table["gpus"], on_bus(pci())),
        "driver": table["driver"],
        "cuda": table["cuda"],
        "gpu_error": table["error"],
    }
