"""The task of the role `engine`: environments that are missing are built on the host."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path, PurePosixPath
from typing import Any

from opsctl.ansible.action import Action, outcome
from opsctl.ansible.compatibility import torch_build
from opsctl.ansible.described import described
from opsctl.engine.compatibility import data, needs
from opsctl.errors import OpsctlError, Problem, SpecError
from opsctl.release.facts import root_of


class ActionModule(Action):
    """Arguments: environments [{"version", "root", "cuda", "install" or none}], python."""

    def act(self) -> dict[str, Any]:
        given = self.given("engine")
        results = [self._converge(one, given["python"]) for one in given["environments"]]
        return {
            "changed": any(r["changed"] for r in results),
            "diff": [part for r in results for part in r["diff"]],
            "failed": any(r.get("failed") for r in results),
            "msg": "\n".join(r["msg"] for r in results if r.get("failed")),
        }

    def _converge(self, environment: dict[str, Any], python: str) -> dict[str, Any]:
        args = look_args(environment, python) | {"check": self.check}
        found = self.program("engine", args | {"do": "look"})
        if found["problems"] or found["state"] == "ready" or self.check:
            return outcome(found)
        wheels = wanted(local_wheels(environment["install"]), args["install"]["requirements"])
        self._send([p for p in wheels if p.name in found["missing"]], environment["root"])
        args["install"] = self._with_index(args["install"], args["root"], args["version"])
        return outcome(self.program("engine", args | {"do": "build"}))

    def _with_index(
        self, install: dict[str, Any] | None, root: str, version: str
    ) -> dict[str, Any] | None:
        """An index may carry a password, so `opsctl_describe` does not hand it on as a result."""
        name = str(self.task_vars["inventory_hostname"])
        if install is None or install["index"] or install["wheels"]:
            return install
        services = described([name], self.task_vars, self._loader)[name].services.values()
        given = [s.engine.install for s in services if s.engine.install and root_of(s) == root]
        return install | {
            "index": filled(next((w.index for w in given if w.index), None), version),
            "torch_index": filled(
                next((w.torch_index for w in given if w.torch_index), None), version
            ),
        }

    def _send(self, wheels: list[Path], root: str) -> None:
        """One after the other through a folder of the login user's, so that its disk needs to
        hold only one; pip judges each by its hash later."""
        if not wheels:
            return
        target = str(PurePosixPath(root).parent / ".wheels")
        self._must("mkdir", "-p", target)
        folder = self._make_tmp_path()
        try:
            for number, wheel in enumerate(wheels, start=1):
                self._display.display(f"  wheel {number} of {len(wheels)}: {wheel.name}")
                sent = self._connection._shell.join_path(folder, wheel.name)
                self._connection.put_file(str(wheel), sent)
                self._must("mv", "-f", sent, target)
        finally:
            self._remove_tmp_path(folder)

    def _must(self, *argv: str) -> None:
        answer = self.host.run(argv)
        if answer.rc != 0:
            message = f"{' '.join(argv)}: {answer.err.strip()}"
            raise OpsctlError(message, host=self.host.name, step="send wheels")


def look_args(environment: dict[str, Any], python: str) -> dict[str, Any]:
    """One environment as the host's program takes it, without `do` and `check`."""
    wheels = local_wheels(environment["install"])
    install = asked(environment, python, bool(wheels))
    text = install["requirements"] if install else ""
    return {
        "root": environment["root"],
        "version": environment["version"],
        "install": install,
        "wheels_wanted": {p.name: p.stat().st_size for p in wanted(wheels, text)},
        "least_driver": least_driver(environment["version"], text)
        if environment.get("cuda", True)
        else "",
    }


def least_driver(version: str, requirements: str) -> str:
    """What the pinned torch needs; without a pin of its build, what the release needs; "" unknown.

    torch==2.9.1+cu130 asks for the driver of CUDA 13, whatever the release is built with (pure).
    """
    build = torch_build(requirements)
    if build is None:
        return str(needs(version).get("driver") or "")
    return str(data()["cuda"].get(build.partition(".")[0], {}).get("driver") or "")


def filled(index: str | None, version: str) -> str | None:
    """{cuda} becomes the release's own CUDA, as indices of torch name it: 12.8 → cu128 (pure)."""
    if not index or "{cuda}" not in index:
        return index
    cuda = needs(version).get("cuda")
    if not cuda:
        problem = Problem(
            f"of SGLang {version} it is not known which CUDA its torch is built with",
            key="engine.install.index",
            hint="write it in place of {cuda}, for example cu128",
        )
        raise SpecError([problem])
    return index.replace("{cuda}", "cu" + cuda.replace(".", ""))


def wanted(wheels: list[Path], requirements: str) -> list[Path]:
    """Of a mirror for several versions, the packages that these requirements name (pure)."""
    pins = re.findall(
        r"^([A-Za-z0-9][\w.-]*?)(?:\[[^\]]*\])?==([^\s;\\]+)", requirements, re.MULTILINE
    )
    named = {(_plain(name), version) for name, version in pins}
    return [wheel for wheel in wheels if _package(wheel.name) in named]


def _package(file: str) -> tuple[str, str]:
    """Name and version out of a wheel's or a source archive's file name."""
    if file.endswith(".whl"):
        name, version = file.split("-")[:2]
    else:
        name, _, version = re.sub(r"\.(tar\.gz|zip)$", "", file).rpartition("-")
    return _plain(name), version


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def asked(environment: dict[str, Any], python: str, sent: bool) -> dict[str, Any] | None:
    """`engine.install` as the host's program wants it; None if nothing is to be installed."""
    install = environment["install"]
    if install is None:
        return None
    file = Path(install["requirements"])
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        problem = Problem(str(error), key="engine.install.requirements", value=str(file))
        raise SpecError([problem]) from None
    mirror = str(PurePosixPath(environment["root"]).parent / ".wheels") if sent else None
    return {
        "python": python,
        "digest": hashlib.sha256(text.encode()).hexdigest(),
        "requirements": text,
        "wheels": mirror or install.get("mirror"),
        "index": install.get("index"),
        "resolve": install.get("resolve", True),
    }


def local_wheels(install: dict[str, Any] | None) -> list[Path]:
    """Packages of a mirror that is a folder on the controller; [] if it is one on the host."""
    mirror = (install or {}).get("mirror")
    if not mirror or not Path(mirror).is_dir():
        return []
    kinds = (".whl", ".tar.gz", ".zip")
    return sorted(p for p in Path(mirror).iterdir() if p.name.endswith(kinds))
