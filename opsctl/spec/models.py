"""The description of a service, as its owner writes it. This is the schema; all else is generated.

Units: a size takes "32GiB" (2^30), "40GB" (10^9) or bytes; a time takes "90s", "15min", "2h".
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    model_validator,
)

from opsctl.spec.kinds import (
    Address,
    Commit,
    EnvName,
    Folder,
    Gpus,
    HttpAddress,
    HubName,
    Patterns,
    Root,
    RsyncPlace,
    Seconds,
    SecretEnvName,
    Sha256,
    Size,
    UnitName,
    User,
    Version,
    seconds,
)

__all__ = [
    "Calibration",
    "Engine",
    "Gates",
    "Memory",
    "Model",
    "Secrets",
    "Service",
    "Source",
    "Timing",
    "Wheels",
    "seconds",
]


class Strict(BaseModel):
    """Unknown keys are refused: a typo is never silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Source(Strict):
    """Where a model's files come from: exactly one of hub, url, s3, rsync, peer, folder."""

    hub: HubName | None = Field(
        None, description="ORGANIZATION/NAME on a model hub; needs endpoint and revision."
    )
    revision: Commit | None = Field(None, description="Commit of the hub's repository.")
    endpoint: HttpAddress | None = Field(
        None, description="Address of the hub, of its mirror, or of the object store."
    )
    s3: str | None = Field(
        None,
        min_length=1,
        description="BUCKET/PREFIX of an object store that is addressed as ENDPOINT/BUCKET.",
    )
    region: str = Field(
        "us-east-1", description="Region that requests to the object store are signed for."
    )
    url: HttpAddress | None = Field(
        None, description="Address of a folder of files with a manifest beside them."
    )
    rsync: RsyncPlace | None = Field(
        None, description="USER@HOST:/FOLDER; root's keys on the host must open it."
    )
    peer: str | None = Field(
        None,
        min_length=1,
        description="Host of the inventory that has the model under the same path; by rsync, too.",
    )
    folder: Folder | None = Field(
        None, description="Folder on the host itself, such as a mounted share."
    )
    manifest: str = Field(
        "SHA256SUMS",
        min_length=1,
        description="Lines of sha256sum, or JSON with files of path, size, sha256, url; its name "
        "in the source, or for url also its whole address.",
    )
    manifest_sha256: Sha256 | None = Field(
        None, description="Hash that the manifest itself must have."
    )
    exclude: Patterns = Field((), description="Files to leave out, as patterns of whole paths.")
    connections: int = Field(4, ge=1, le=32, description="Files that are fetched at once.")
    limit: Size | None = Field(None, description="Most bytes a second, all connections together.")
    page_cache: Literal["drop", "keep"] = Field(
        "drop",
        description="Whether fetched files stay in memory; they may push out what engines read.",
    )
    token: SecretStr | None = Field(
        None, description="The hub's or server's token; KEY_ID:SECRET for an object store."
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        kinds = ("hub", "url", "s3", "rsync", "peer", "folder")
        named = [key for key in kinds if getattr(self, key)]
        if len(named) != 1:
            raise ValueError(
                "needs exactly one of hub, url, s3, rsync, peer, folder; "
                f"there is {' and '.join(named) or 'none'}"
            )
        if self.hub and not (self.revision and self.endpoint):
            raise ValueError("hub needs endpoint, and revision: the commit that is wanted")
        if self.s3 and not self.endpoint:
            raise ValueError("s3 needs endpoint")
        if "?" in self.manifest:
            raise ValueError("manifest holds a query, which may be a secret; use token")
        return self


class Model(Strict):
    """What is served."""

    path: Folder = Field(description="Folder of the model on the host; becomes --model-path.")
    served_name: str | None = Field(
        None,
        min_length=1,
        description="Name that clients ask for; becomes --served-model-name.",
    )
    size: Size | None = Field(
        None,
        description="Least total size of the weight files on the host, if it is to be checked.",
    )
    source: Source | None = Field(
        None, description="Where its files come from; unset: they must be there already."
    )
    draft_source: Source | None = Field(
        None, description="The same for the draft model that the flags name."
    )


class Wheels(Strict):
    """Where the engine's packages come from. Without it, the engine must be there already."""

    requirements: str = Field(
        description="File on the controller: pinned requirements with --hash, for pip."
    )
    mirror: str | None = Field(
        None, description="Folder of wheels on the controller, or on the host; no index is asked."
    )
    index: str | None = Field(
        None,
        description="Index address; the host's own default if unset. {cuda} in it becomes the "
        "release's own CUDA, such as cu128.",
    )
    torch_index: str | None = Field(
        None, description="One more index, for torch's builds; {cuda} as in index."
    )
    resolve: bool = Field(
        True,
        description="Whether packages' own demands must fit; false installs exactly what is "
        "listed, for lists that a metadata contradicts (torch for the CPU).",
    )


class Engine(Strict):
    """Which SGLang, and where it is."""

    version: Version = Field(description="Exact SGLang version, for example 0.5.9.")
    root: Root | None = Field(
        None, description="Environment on the host; /opt/sglang/VERSION if unset."
    )
    install: Wheels | None = Field(
        None, description="How to install it; unset: it must be at the root already."
    )


class Calibration(Strict):
    """Figures measured at an earlier start of this model on this kind of host."""

    gpu_free_before: Size | None = Field(
        None, description="Least GPU memory free over the ranks before the weights."
    )
    gpu_free_after: Size | None = Field(
        None, description="Least GPU memory free over the ranks after the weights."
    )
    kv_tokens: int | None = Field(None, gt=0, description="Tokens of the KV cache as logged.")

    @model_validator(mode="after")
    def _less_after(self) -> Self:
        before, after = self.gpu_free_before, self.gpu_free_after
        if before is not None and after is not None and after > before:
            raise ValueError(
                f"gpu_free_after ({after / 2**30:g} GiB) is more than gpu_free_before "
                f"({before / 2**30:g} GiB)"
            )
        return self


class Memory(Strict):
    """What the host must have left, and what is known of its memory."""

    min_available: Size = Field(
        ByteSize(16 << 30), description="MemAvailable that must be left after the start."
    )
    swap: Literal["forbid", "allow"] = Field("forbid", description="Whether swap may be in use.")
    calibration: Calibration = Field(
        default_factory=Calibration, description="Measured figures that a forecast may start from."
    )


class Gates(Strict):
    """What must be true before a release is confirmed."""

    health_in_row: int = Field(3, ge=1, description="Healthy answers in a row that are demanded.")
    generation: bool = Field(True, description="Demand a real completion.")
    reasoning: bool | None = Field(
        None, description="Demand reasoning_content; unset: if a reasoning parser is set."
    )
    tools: bool | None = Field(
        None, description="Demand a parsed tool call; unset: if a tool-call parser is set."
    )
    max_tokens: int = Field(512, gt=0, description="Most tokens that a gate's request may take.")
    request_timeout: Seconds = Field(120.0, gt=0, description="Longest wait for one gate's answer.")
    soak: Seconds = Field(30.0, description="Time that the service must stay good at the end.")
    poll: Seconds = Field(2.0, gt=0, description="Time between two looks at the host.")


class Timing(Strict):
    """How long things may take."""

    drain: Seconds = Field(60.0, description="Time for requests in flight to finish at a stop.")
    stall: Seconds = Field(900.0, gt=0, description="Longest time without progress in a start.")
    cap: Seconds | None = Field(
        None, gt=0, description="Longest time of a whole start; from the forecast if unset."
    )


class Secrets(Strict):
    """Values that appear in no argv, unit, diff or log; they travel as 0600 files."""

    api_key: SecretStr | None = Field(
        None, alias="api-key", description="Key that clients must send; becomes --api-key."
    )
    admin_api_key: SecretStr | None = Field(
        None, alias="admin-api-key", description="Key for administration; becomes --admin-api-key."
    )
    env: dict[SecretEnvName, SecretStr] = Field(
        default_factory=dict, description="Environment variables of the engine that are secret."
    )

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, populate_by_name=True
    )


class Service(Strict):
    """One entry of `sglang_services`; its name is the key, its unit is sglang-NAME.service."""

    model: Model = Field(description="What is served.")
    engine: Engine = Field(description="Which SGLang, and where it is.")
    host: Address = Field("127.0.0.1", description="Address that the engine listens on.")
    port: int = Field(30000, ge=1, le=65535, description="Port that the engine listens on.")
    flags: dict[str, Any] = Field(
        default_factory=dict,
        description="The engine's own flags, without the leading dashes, as this version has them.",
    )
    env: dict[EnvName, str] = Field(
        default_factory=dict, description="Environment variables of the engine, not secret."
    )
    secrets: Secrets = Field(
        default_factory=Secrets, description="Keys and variables that stay secret."
    )
    gpus: Gpus | None = Field(
        None, description="GPUs of this service; all if unset. Becomes CUDA_VISIBLE_DEVICES."
    )
    user: User = Field("sglang", description="System user that runs the engine.")
    takes_over: UnitName | None = Field(
        None,
        description="Unit of other hands that this service replaces, if its name is another one: "
        "it is stopped, disabled and kept as release 0.",
    )
    memory: Memory = Field(default_factory=Memory, description="Host memory.")
    gates: Gates = Field(default_factory=Gates, description="What is demanded of a start.")
    timing: Timing = Field(default_factory=Timing, description="How long things may take.")

    # Before one host's own changes; None where it has none. Figures that the owner measured were
    # written beside it.
    _shared: Service | None = PrivateAttr(None)

    @property
    def shared(self) -> Service | None:
        return self._shared

    def changed_from(self, shared: Service) -> Self:
        """The same, of a host whose own changes made it of `shared`."""
        copy = self.model_copy()
        copy._shared = shared
        return copy

    @model_validator(mode="after")
    def _one_place_each(self) -> Self:
        if self.gpus is not None and "CUDA_VISIBLE_DEVICES" in self.env:
            raise ValueError("env.CUDA_VISIBLE_DEVICES is set, and gpus too; keep one of the two")
        if twice := sorted(set(self.env) & set(self.secrets.env)):
            raise ValueError(f"{twice[0]} is set in env and in secrets.env; keep one of the two")
        return self
