"""The description of a service, as its owner writes it. This is the schema; all else is generated.

Units: `ByteSize` takes "32GiB" (2^30), "40GB" (10^9) or bytes; `Seconds` takes "90s", "15min", "2h".
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, SecretStr

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?")
_UNIT = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, None: 1.0}


def seconds(value: object) -> float:
    """A span of time in seconds, from a number or from text such as "90s", "15min", "2h"."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a span of time is a number of seconds, or text such as 90s, 15min, 2h")
    if not isinstance(value, str):
        return float(value)
    match = _SPAN.fullmatch(value.strip())
    if match is None:
        raise ValueError("a span of time is a number of seconds, or text such as 90s, 15min, 2h")
    return float(match[1]) * _UNIT[match[2]]


Seconds = Annotated[float, BeforeValidator(seconds), Field(ge=0)]


class Strict(BaseModel):
    """Unknown keys are refused: a typo is never silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Model(Strict):
    path: str = Field(description="Folder of the model on the host; becomes --model-path.")
    served_name: str | None = Field(
        None, description="Name that clients ask for; becomes --served-model-name."
    )
    size: ByteSize | None = Field(
        None, description="Least total size of the weight files on the host, if it is to be checked."
    )


class Wheels(Strict):
    """Where the engine's packages come from. Without it, /opt/sglang/VERSION must exist already."""

    requirements: str = Field(
        description="File on the controller: pinned requirements with --hash, for pip."
    )
    mirror: str | None = Field(
        None, description="Folder of wheels on the controller, or on the host; no index is asked."
    )
    index: str | None = Field(None, description="Index address; the host's own default if unset.")


class Engine(Strict):
    version: str = Field(description="Exact SGLang version, for example 0.5.9.")
    root: str | None = Field(None, description="Environment on the host; /opt/sglang/VERSION.")
    install: Wheels | None = None


class Calibration(Strict):
    """Figures measured at an earlier start of this model on this kind of host."""

    gpu_free_before: ByteSize | None = Field(
        None, description="Least GPU memory free over the ranks before the weights."
    )
    gpu_free_after: ByteSize | None = Field(
        None, description="Least GPU memory free over the ranks after the weights."
    )
    kv_tokens: int | None = Field(None, gt=0, description="Tokens of the KV cache as logged.")


class Memory(Strict):
    min_available: ByteSize = Field(
        ByteSize(16 << 30), description="MemAvailable that must be left after the start."
    )
    swap: Literal["forbid", "allow"] = Field("forbid", description="Whether swap may be in use.")
    calibration: Calibration = Calibration()


class Gates(Strict):
    health_in_row: int = Field(3, ge=1, description="Healthy answers in a row that are demanded.")
    generation: bool = Field(True, description="Demand a real completion.")
    reasoning: bool | None = Field(
        None, description="Demand reasoning_content; unset: if a reasoning parser is set."
    )
    tools: bool | None = Field(
        None, description="Demand a parsed tool call; unset: if a tool-call parser is set."
    )
    max_tokens: int = Field(512, gt=0, description="Most tokens that a gate's request may take.")
    request_timeout: Seconds = Field(120.0, description="Longest wait for one gate's answer.")
    soak: Seconds = Field(30.0, description="Time that the service must stay good at the end.")
    poll: Seconds = Field(2.0, gt=0, description="Time between two looks at the host.")


class Timing(Strict):
    drain: Seconds = Field(60.0, description="Time for requests in flight to finish at a stop.")
    stall: Seconds = Field(900.0, description="Longest time without any progress in a start.")
    cap: Seconds = Field(5400.0, description="Longest time of a whole start.")


class Secrets(Strict):
    """Values that appear in no argv, unit, diff or log; they travel as 0600 files."""

    api_key: SecretStr | None = Field(None, alias="api-key")
    admin_api_key: SecretStr | None = Field(None, alias="admin-api-key")
    env: dict[str, SecretStr] = Field(
        default_factory=dict, description="Environment variables of the engine that are secret."
    )

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Service(Strict):
    """One entry of `sglang_services`; its name is the key, its unit is sglang-NAME.service."""

    model: Model
    engine: Engine
    host: str = Field("127.0.0.1", description="Address that the engine listens on.")
    port: int = Field(30000, ge=1, le=65535)
    flags: dict[str, Any] = Field(
        default_factory=dict, description="The engine's own flags, without the leading dashes."
    )
    env: dict[str, str] = Field(default_factory=dict)
    secrets: Secrets = Secrets()  # type: ignore[call-arg]
    gpus: tuple[int, ...] | None = Field(
        None, description="GPUs of this service; all if unset. Becomes CUDA_VISIBLE_DEVICES."
    )
    user: str = Field("sglang", description="System user that runs the engine.")
    memory: Memory = Memory()  # type: ignore[call-arg]
    gates: Gates = Gates()  # type: ignore[call-arg]
    timing: Timing = Timing()  # type: ignore[call-arg]
