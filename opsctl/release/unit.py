"""The unit's text: the template, and every value quoted for the setting that it goes to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from opsctl import paths
from opsctl.errors import Problem, SpecError
from opsctl.release import quoting
from opsctl.release.facts import cache_of, draft_of, root_of
from opsctl.release.model import folder_of
from opsctl.spec.models import Service

if TYPE_CHECKING:
    from jinja2 import Template

RESTART_SEC = 30
START_LIMIT_BURST = 3
STOP_MARGIN = 75  # seconds after the drain that the engine's own processes take to leave


def unit_text(
    name: str,
    service: Service,
    arguments: Sequence[str],
    secret_names: Sequence[str],
    typed: Mapping[str, Any],
    digest_text: str,
    limit: float,
) -> str:
    """The unit's text from the template, every value quoted. `limit`: seconds of one start."""
    folder = folder_of(name, digest_text)
    program = f"{root_of(service)}/bin/python"
    entry = f"{folder}/launch.py" if secret_names else "-m sglang.launch_server"
    mounts = [("model.path", service.model.path)]
    if draft := draft_of(typed):
        mounts.append(("flags.speculative-draft-model-path", draft))
    text = _template().render(
        description=_quote(name, "name", quoting.text, f"SGLang {service.engine.version}: {name}"),
        digest=digest_text,
        mounts=[_quote(name, key, quoting.path, path) for key, path in mounts],
        start_limit_burst=START_LIMIT_BURST,
        start_limit_interval=START_LIMIT_BURST * (math.ceil(limit) + RESTART_SEC),
        restart_sec=RESTART_SEC,
        timeout_stop=math.ceil(service.timing.drain) + STOP_MARGIN,
        user=_quote(name, "user", quoting.user, service.user),
        unit_name=f"sglang-{name}",
        cache=cache_of(name),
        cache_directory=f"opsctl/{name}",
        environment=[
            _quote(name, f"env.{key}", quoting.environment, key, value)
            for key, value in environment(name, service).items()
        ],
        credentials=[
            quoting.credential(secret, f"{folder}/secrets/{secret}") for secret in secret_names
        ],
        command=[
            f"{_quote(name, 'engine.root', quoting.executable, program)} {entry}",
            *_lines(name, arguments),
        ],
        forbid_swap=service.memory.swap == "forbid",
    )
    return _quote(name, "flags", quoting.whole, text)


def _lines(service: str, arguments: Sequence[str]) -> list[str]:
    """One line a flag with its values."""
    lines: list[str] = []
    flag = ""
    for argument in arguments:
        new = argument.startswith("--")
        flag = argument if new else flag
        key = "flags." + flag.partition("=")[0].lstrip("-")
        quoted = _quote(service, key, quoting.argument, argument)
        if new or not lines:
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return lines


def environment(name: str, service: Service) -> dict[str, str]:
    """The engine's variables: ours first, and the owner's word over ours.

    HOME stands in the cache folder, so that whatever compiles kernels keeps them across releases;
    those that look elsewhere are told. PATH has nvcc, for kernels that are compiled at the start.
    """
    cache = cache_of(name)
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    ours = {
        "PATH": f"{root_of(service)}/bin:/usr/local/cuda/bin:{system}",
        "HOME": cache,
        "PYTHONUNBUFFERED": "1",
        "TRITON_CACHE_DIR": f"{cache}/compiled/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/compiled/inductor",
        "FLASHINFER_WORKSPACE_BASE": f"{cache}/compiled/flashinfer",
        "SGLANG_DG_CACHE_DIR": f"{cache}/compiled/deep_gemm",
    }
    if service.gpus is not None:
        if "CUDA_VISIBLE_DEVICES" in service.env:
            key = "env.CUDA_VISIBLE_DEVICES"
            raise SpecError([Problem("is set, and gpus too; use one", service=name, key=key)])
        ours["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, service.gpus))
    return {**ours, **dict(sorted(service.env.items()))}


def _quote(service: str, key: str, quoted: Callable[..., str], *values: str) -> str:
    """One value through quoting.py; a refusal names the key it came from."""
    try:
        return quoted(*values)
    except quoting.Unquotable as error:
        shown = ascii(values[-1])
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        raise SpecError([Problem(str(error), service=service, key=key, value=shown)]) from None


@lru_cache
def _template() -> Template:
    from jinja2 import (
        Environment,
        FileSystemLoader,
        StrictUndefined,
    )  # 40 ms, which only this needs

    # Nothing is escaped for HTML: quoting.py has made every value fit for a unit.
    loader = FileSystemLoader(paths.share() / "templates")
    environment = Environment(
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template("sglang.service.j2")
