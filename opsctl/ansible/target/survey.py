"""What the roles of a host's preparation would find, in one look; changes nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict

from opsctl.ansible.target.cuda import main as cuda
from opsctl.ansible.target.engine import main as engine
from opsctl.ansible.target.host import main as host
from opsctl.ansible.target.host_tuning import main as host_tuning
from opsctl.ansible.target.model import main as model
from opsctl.ansible.target.nvidia_driver import main as nvidia_driver


def main(args: Dict[str, Any]) -> Dict[str, Any]:
    """`args`: what the program of each role takes, by its name; `engine` a list of it.

    Answers what each says, by its name.
    """
    with ThreadPoolExecutor(1) as pool:
        gpus = pool.submit(cuda, {**args["cuda"], "check": True})  # mostly waits for nvidia-smi
        return {
            "host": host({**args["host"], "check": True}),
            "nvidia_driver": nvidia_driver({**args["nvidia_driver"], "check": True}),
            "host_tuning": host_tuning({**args["host_tuning"], "check": True}),
            "engine": [engine({**one, "do": "look", "check": True}) for one in args["engine"]],
            "model": model(args["model"]),
            "cuda": gpus.result(),
        }
