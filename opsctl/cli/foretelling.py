"""What `opsctl forecast` reads for its question: files of this machine, or hosts.

Nothing is decided here; what is read becomes a forecast.question.Question.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsctl.errors import OpsctlError, Refused, SpecError

if TYPE_CHECKING:
    from opsctl.cli.frame import Settings
    from opsctl.forecast.question import Given, Question
    from opsctl.remote.host import Host

LARGEST_CONFIG = 4 << 20  # bytes
LARGEST_JOURNAL = 256 << 20
SUFFIXES = (".yml", ".yaml", ".json")


@dataclass(frozen=True)
class Files:
    """Files of this machine that belong to a description in a file."""

    service: str | None = None  # its name there, if there are several
    model: Path | None = None
    draft: Path | None = None
    journal: Path | None = None


def is_file(name: str) -> bool:
    """Whether SERVICE means a file: a service of the inventory has no slash and no such ending."""
    return name.endswith(SUFFIXES) or "/" in name or Path(name).is_file()


def of_file(path: Path, given: Given, files: Files, sets: tuple[str, ...]) -> Question:
    """The question about a description in a file. Raises Refused for what cannot be read,
    SpecError for what is wrong in it."""
    from opsctl.forecast.question import Question, described, offline
    from opsctl.inventory.single import single, unresolved
    from opsctl.spec.change import changed

    written = single(path, files.service)
    if found := unresolved(written.name, changed(written.entry, sets), path):
        raise SpecError(found)
    service = described(written.name, written.entry, sets)
    return Question(
        written.name,
        written.entry,
        offline(
            given,
            _model(service.model.path, files.model, path),
            _draft(service.flags, files.draft),
        ),
        given.calibration(),
        sets,
        _journal(files),
        (*given.notes(), *_unused(service.flags, files)),
    )


def _unused(flags: Mapping[str, Any], files: Files) -> tuple[str, ...]:
    """A file that was named, and that nothing of the description asks for."""
    algorithm = str(flags.get("speculative-algorithm") or "").upper()
    if files.draft is None or algorithm not in ("", "NGRAM"):
        return ()
    has = f"speculative-algorithm {algorithm} has no draft model" if algorithm else ""
    return (f"--draft-config has no effect: {has or 'speculative-algorithm is not set'}",)


def of_hosts(
    settings: Settings, name: str, given: Given, files: Files, sets: tuple[str, ...]
) -> dict[str, Question | OpsctlError]:
    """The question about each selected host that has this service, by host. A host that gives no
    answer has its error. Raises Refused for figures that the host itself tells."""
    from opsctl import inventory
    from opsctl.cli import fleet

    _only_offline(name, given, files)
    path = inventory.find(settings.inventory)
    raw = inventory.as_far(path)
    chosen = inventory.select(inventory.book_of(path, raw), [name], settings.hosts)
    inventory.must_be_read(raw, chosen.names, name, secrets=False)

    def ask(host: Host) -> Question:
        return _of_host(host, name, raw["hosts"][host.name], given, files, sets)

    with fleet.opened(chosen) as reached:
        return reached.each(ask)


def _of_host(
    host: Host,
    name: str,
    said: Mapping[str, Any],
    given: Given,
    files: Files,
    sets: tuple[str, ...],
) -> Question:
    from opsctl.forecast.question import Question
    from opsctl.rollout.staging import facts_of
    from opsctl.spec.merge import merge

    shared, own = said.get("sglang_services") or {}, said.get("sglang_overrides") or {}
    services = merge(shared, own)
    base = shared.get(name) if own.get(name) else None
    bare = Question(name, services[name], {}, sets=sets)
    facts = facts_of(host, name, bare.asked().manifest)
    calibration, text = given.calibration(), _journal(files)
    return Question(name, services[name], facts, calibration, sets, text, base=base)


def _only_offline(name: str, given: Given, files: Files) -> None:
    """A host tells its own GPUs and RAM; figures beside its own would contradict them."""
    asked = {
        "--gpus": given.gpus,
        "--gpu-name": given.gpu_name,
        "--gpu-total": given.gpu_total,
        "--ram-total": given.ram_total,
        "--ram-available": given.ram_available,
        "--model-config": files.model,
        "--draft-config": files.draft,
        "--service": files.service,
    }
    if wrong := [option for option, value in asked.items() if value]:
        raise Refused(
            f"{wrong[0]} is for a description in a file: {name} is a service of the inventory, "
            "whose hosts tell it themselves",
            hint=f"opsctl forecast {name}, or opsctl forecast FILE.yml {wrong[0]} …",
        )


def _journal(files: Files) -> str:
    if files.journal is None:
        return ""
    text = _text(files.journal, LARGEST_JOURNAL, "--journal")
    if not text.strip():
        raise Refused(
            f"--journal: {files.journal} is empty",
            hint="journalctl -u UNIT -o cat --no-pager > FILE, on the host of an earlier start",
        )
    return text


def _model(described: str, given: Path | None, file: Path) -> dict[str, Any]:
    """The model's folder as a host tells it, from --model-config or from where it stands."""
    if given is not None:
        return folder(given, "--model-config")
    here = Path(described)
    if (here / "config.json").is_file():
        return folder(here, "model.path")
    raise Refused(
        f"the model's config.json is not known: {described} is not on this machine",
        hint=f"opsctl forecast {file} --model-config PATH/config.json",
    )


def _draft(flags: Mapping[str, Any], given: Path | None) -> dict[str, Any] | None:
    if given is not None:
        return folder(given, "--draft-config")
    here = flags.get("speculative-draft-model-path")
    if isinstance(here, str) and here.startswith("/") and (Path(here) / "config.json").is_file():
        return folder(Path(here), "speculative-draft-model-path")
    return None


def folder(path: Path, option: str) -> dict[str, Any]:
    """A model's folder, or one config.json, in the form of the host's `facts`."""
    if path.is_dir():
        from opsctl.onhost import modelfiles

        if not (path / "config.json").is_file():
            raise Refused(f"{option}: {path} holds no config.json")
        return modelfiles.folder(path, _cache())
    texts = {"config.json": _json(path, option)}
    beside = path.with_name("hf_quant_config.json")
    if path.name == "config.json" and beside.is_file():
        texts[beside.name] = _text(beside, LARGEST_CONFIG, option)
    return {"path": str(path), "exists": True, "texts": texts, "files": [], "tensors": None}


def _json(path: Path, option: str) -> str:
    """The text of a file that somebody named: what is wrong in it is told by its own name."""
    text = _text(path, LARGEST_CONFIG, option)
    try:
        whole = isinstance(json.loads(text), dict)
    except ValueError as problem:
        raise Refused(f"{option}: {path} is no JSON: {problem}") from None
    if not whole:
        raise Refused(f"{option}: {path} is no JSON object")
    return text


def _cache() -> Path:
    """Where the headers of tensors are kept between two commands, below var/cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "opsctl"


def _text(path: Path, largest: int, option: str) -> str:
    try:
        if path.stat().st_size > largest:
            raise Refused(f"{option}: {path} is larger than {largest >> 20} MiB")
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise Refused(f"{option}: there is no file {path}") from None
    except OSError as error:
        raise Refused(f"{option}: cannot read {path}: {error.strerror or error}") from error
