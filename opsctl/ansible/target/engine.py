"""The role `engine`: one environment per engine version, made beside and put in place at once.

A virtual environment names its own folder in its scripts, so it cannot be moved: it is built where
it stays, in ROOT's parent under `.builds/`, and ROOT is a link that a rename puts in place. The
stamp, written last, tells a whole build from a torn one; what became of a whole one is looked at
before it is used (`builds`), and a damaged one is built again beside it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional
from urllib.parse import urlsplit

from opsctl.ansible.target import builds
from opsctl.ansible.target.builds import STAMP, in_use, installed, is_version
from opsctl.ansible.target.converge import Host, Refused, run
from opsctl.onhost.files import Busy, flock, link, read_json, write_json

FULL = 256 << 20  # bytes free: with less, an installation that failed has failed for that
PATIENCE = 900.0  # seconds for another run's build; wheels that are there take some three minutes


def main(args: Dict[str, Any]) -> Dict[str, Any]:
    """`args`: root, version, install (null, or {"python", "digest", "requirements", "wheels",
    "index", "torch_index", "resolve"}), wheels_wanted {name: bytes}, least_driver ("" if nothing
    is known, or no GPU is used), do ("look" or "build"), check.

    "look" answers `state`: "ready", "build" and, of the wheels that are wanted, those `missing`.
    """
    host = Host(check=args["check"])
    try:
        if args["do"] == "build":
            _build(host, args)
            return host.result(state="ready")
        state = _state(args)
        if state == "build":
            _demand_driver(args)
            want = _described(args["version"], args["install"]["digest"])
            host.changed(args["root"], _built(args["root"]), want)
        return host.result(state=state, missing=_missing(args) if state == "build" else [])
    except (Refused, OSError) as problem:
        return host.result(problems=[str(problem)])


def _state(args: Dict[str, Any]) -> str:
    root, version, install = args["root"], args["version"], args["install"]
    if install is None:
        _demand(root, version)
        return "ready"
    if not os.path.lexists(root):
        return "build"
    if not os.path.islink(root):
        raise Refused(
            f"{root} is there but was not made by opsctl: leave engine.install unset to use it as "
            "it is, or name another engine.root"
        )
    stamp = read_json(Path(root) / STAMP) or {}
    if stamp.get("digest") == install["digest"]:
        if not is_version(stamp["version"], version):
            held = stamp["version"]
            raise Refused(f"{root} holds SGLang {held}, the description asks for {version}")
        return "build" if builds.damage(root, stamp) else "ready"
    if builds.leads_to(root, install["digest"]):
        return "build"  # the same once more: what runs from it finds its files again
    users = in_use(root)
    if users:
        what = "the requirements of {} have changed" if stamp else "the build behind {} is damaged"
        raise Refused(
            f"{what.format(root)}, and process {users[0]} runs from it: name another engine.root, "
            "so that both stand side by side, or stop that process"
        )
    return "build"


def _demand(root: str, version: str) -> None:
    found = installed(root)
    if found is None:
        raise Refused(
            f"{root}/bin/python is missing: put the environment there, or describe engine.install"
        )
    if not is_version(found, version):
        what = f"holds SGLang {found}" if found else "holds no SGLang"
        raise Refused(f"{root} {what}, the description asks for {version}")


def _demand_driver(args: Dict[str, Any]) -> None:
    """No driver at all is for the role `cuda` to tell."""
    least, found = args.get("least_driver") or "", driver()
    if least and found and _numbers(found) < _numbers(least):
        raise Refused(
            f"SGLang {args['version']} as its requirements pin it needs NVIDIA driver {least} or "
            f"newer, this host has {found}: nothing was installed"
        )


def driver() -> str:
    """As the kernel has it loaded; else as nvidia-smi says; "" if neither knows."""
    with contextlib.suppress(OSError):
        return Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip()
    try:
        said = run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    except Refused:
        return ""
    return said.split("\n", 1)[0].strip()


def _numbers(version: str) -> List[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _wheels(args: Dict[str, Any]) -> Path:
    """Where the controller's wheels are sent to; gone again when the environment stands."""
    return Path(args["root"]).parent / ".wheels"


def _missing(args: Dict[str, Any]) -> List[str]:
    """Wheels that must still be sent: not there, or of another size."""
    folder = _wheels(args)
    found = {p.name: p.stat().st_size for p in folder.glob("*")} if folder.is_dir() else {}
    return sorted(n for n, size in args["wheels_wanted"].items() if found.get(n) != size)


def _build(host: Host, args: Dict[str, Any]) -> None:
    root, digest = args["root"], args["install"]["digest"]
    parent = Path(root).parent / ".builds"
    parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _alone(parent):
        before = _built(root)
        folder = builds.whole(root, digest)
        if folder is None:
            _remove_torn(root)
            folder = builds.vacant(root, digest)
            _make(folder, args)
        link(Path(root), f".builds/{folder.name}")
        _remove_damaged(root, digest, folder)
        if args["wheels_wanted"]:
            shutil.rmtree(str(_wheels(args)), ignore_errors=True)
    host.changed(root, before, _described(args["version"], digest))


def _make(folder: Path, args: Dict[str, Any]) -> None:
    try:
        _install(folder, args["install"])
    except (Refused, OSError) as problem:
        free = shutil.disk_usage(str(folder.parent)).free
        shutil.rmtree(str(folder), ignore_errors=True)  # it would keep a full disk full
        if free < FULL:
            raise Refused(
                f"{problem}\n{folder.parent} had {free >> 20} MiB free: its disk is full"
            ) from None
        raise
    found = installed(str(folder))
    if not is_version(found, args["version"]):
        raise Refused(
            f"the requirements install SGLang {found or '(none)'}, the description asks "
            f"for {args['version']}"
        )
    stamp = {"digest": args["install"]["digest"], "version": found}
    write_json(folder / STAMP, {**stamp, "packages": builds.packages(str(folder))})


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """A run whose playbook was lost goes on: whoever comes next waits for it."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(flock(folder / ".lock", patience=PATIENCE))
        except Busy:
            raise Refused(
                f"another run builds in {folder} for {PATIENCE / 60:.0f} minutes and more: look "
                f"with fuser -v {folder}/.lock, then deploy again"
            ) from None
        yield


def _remove_torn(root: str) -> None:
    """Builds of this root that did not come to their end, and what a run that was killed
    downloaded: nobody else builds here now."""
    for left in (Path(root).parent / ".builds").glob(".tools-*"):
        shutil.rmtree(str(left), ignore_errors=True)
    for torn in builds.torn(root):
        users = in_use(str(torn))
        if users:
            raise Refused(f"{torn} is not whole, and process {users[0]} uses it")
        shutil.rmtree(str(torn), ignore_errors=True)


def _remove_damaged(root: str, digest: str, but: Path) -> None:
    """Builds that another one of the same requirements has replaced, unless a process has files
    of theirs open: they are many GiB."""
    for folder in builds.of(root, digest):
        if folder != but and folder.is_dir() and not in_use(str(folder)):
            shutil.rmtree(str(folder), ignore_errors=True)


def _install(folder: Path, install: Dict[str, Any]) -> None:
    """Every package by its hash only. uv does it where there is one, for it is faster by far."""
    text = install["requirements"]
    if hashlib.sha256(text.encode()).hexdigest() != install["digest"]:
        raise Refused("the requirements were damaged on the way")
    tools = folder.parent / f".tools-{os.getpid()}"
    tools.mkdir(exist_ok=True)
    try:
        requirements = tools / "requirements.txt"
        requirements.write_text(text, encoding="utf-8")
        uv = installer(text, install["wheels"], tools)
        (_with_uv if uv else _with_pip)(uv, folder, requirements, install, tools)
        shutil.copy(str(requirements), str(folder / "requirements.txt"))
    finally:
        shutil.rmtree(str(tools), ignore_errors=True)


def _with_pip(
    _: str, folder: Path, requirements: Path, install: Dict[str, Any], tools: Path
) -> None:
    try:
        run([install["python"], "-m", "venv", str(folder)])
    except Refused as problem:
        hint = "ensurepip is not available" in str(problem)
        told = "\n(on Debian and Ubuntu the package python3-venv is needed)" if hint else ""
        raise Refused(f"{problem}{told}") from None
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--no-input", "--quiet"]
    run(
        [*pip, "--disable-pip-version-check", *_asked(requirements, install)],
        indexes(install, "PIP"),
    )


def _with_uv(
    uv: str, folder: Path, requirements: Path, install: Dict[str, Any], tools: Path
) -> None:
    """Its cache is on the same disk, so that packages are linked, not copied; then it is gone.
    The engine's user can write no .pyc files: they are compiled here, as pip does."""
    common = {"UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(tools / "cache"), "UV_NO_PROGRESS": "1"}
    common["UV_PYTHON_DOWNLOADS"] = "never"
    env = {**common, **indexes(install, "UV")}
    run([uv, "venv", "--quiet", "--python", install["python"], str(folder)], env)
    python = str(folder / "bin" / "python")
    asked = ["--compile-bytecode", *_asked(requirements, install)]
    run([uv, "pip", "install", "--quiet", "--python", python, *asked], env)


def _asked(requirements: Path, install: Dict[str, Any]) -> List[str]:
    words = ["--require-hashes", "-r", str(requirements)]
    words += [] if install.get("resolve", True) else ["--no-deps"]
    return words + (["--no-index", "--find-links", install["wheels"]] if install["wheels"] else [])


def indexes(install: Dict[str, Any], tool: str) -> Dict[str, str]:
    """An index may carry a password: it stands in the environment, not in argv. Hashes decide what
    a package is, so uv may look for one in both indexes, as pip does."""
    names = {
        "PIP": ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"),
        "UV": ("UV_DEFAULT_INDEX", "UV_INDEX"),
    }
    pairs = zip(names[tool], (install.get("index"), install.get("torch_index")))
    found = {name: value for name, value in pairs if value}
    plain = [urlsplit(value).netloc for value in found.values() if value.startswith("http://")]
    if tool == "PIP" and plain:  # it leaves out what has no TLS; uv does not
        found["PIP_TRUSTED_HOST"] = " ".join(netloc.rpartition("@")[2] for netloc in plain)
    return {**found, "UV_INDEX_STRATEGY": "unsafe-best-match"} if tool == "UV" else found


def installer(text: str, wheels: Optional[str], tools: Path) -> str:
    """uv: of the mirror, if the requirements name it; else the host's own; "" if there is none."""
    hashes = re.findall(r"^uv==(?:[^\n]*\\\n)*[^\n]*", text, re.MULTILINE)
    for wheel in sorted(Path(wheels).glob("uv-*.whl")) if hashes and wheels else []:
        if hashlib.sha256(wheel.read_bytes()).hexdigest() in hashes[0]:
            with zipfile.ZipFile(str(wheel)) as archive:
                member = next((n for n in archive.namelist() if n.endswith("/scripts/uv")), None)
                if member:
                    (tools / "uv").write_bytes(archive.read(member))
                    (tools / "uv").chmod(0o755)
                    return str(tools / "uv")
    return shutil.which("uv") or ""


def _described(version: str, digest: str) -> str:
    return f"SGLang {version}, requirements {digest[:12]}\n"


def _built(root: str) -> str:
    """What stands at `root` now, "" if nothing that was made here."""
    stamp = read_json(Path(root) / STAMP)
    if stamp is None:
        return ""
    wrong = builds.damage(root, stamp)
    return f"damaged: {wrong}\n" if wrong else _described(stamp["version"], stamp["digest"])
