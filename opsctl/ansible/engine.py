"""The task of the role `engine`: environments that are missing are built on the host."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from typing import Any

from opsctl.ansible.action import Action, outcome
from opsctl.ansible.described import described
from opsctl.errors import OpsctlError, Problem, SpecError


class ActionModule(Action):
    """Arguments: environments [{"version", "root", "install" or none}], python."""

    def act(self) -> dict[str, Any]:
        results = [self._converge(one) for one in self.args["environments"]]
        return {
            "changed": any(r["changed"] for r in results),
            "diff": [part for r in results for part in r["diff"]],
            "failed": any(r.get("failed") for r in results),
            "msg": "\n".join(r["msg"] for r in results if r.get("failed")),
        }

    def _converge(self, environment: dict[str, Any]) -> dict[str, Any]:
        args = look_args(environment, self.args["python"]) | {"check": self.check}
        found = self.program("engine", args | {"do": "look"})
        if found["problems"] or found["state"] == "ready" or self.check:
            return outcome(found)
        wheels = local_wheels(environment["install"])
        self._send([p for p in wheels if p.name in found["missing"]], environment["root"])
        args["install"] = self._with_index(args["install"])
        return outcome(self.program("engine", args | {"do": "build"}))

    def _with_index(self, install: dict[str, Any] | None) -> dict[str, Any] | None:
        """An index may carry a password, so `opsctl_describe` does not hand it on as a result."""
        name = str(self.task_vars["inventory_hostname"])
        if install is None or install["index"] or install["wheels"]:
            return install
        entry = described([name], self.task_vars, self._loader)[name]
        given = [s.engine.install.index for s in entry.services.values() if s.engine.install]
        return install | {"index": next((index for index in given if index), None)}

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
    return {
        "root": environment["root"],
        "version": environment["version"],
        "install": asked(environment, python, bool(wheels)),
        "wheels_wanted": {p.name: p.stat().st_size for p in wheels},
    }


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
    }


def local_wheels(install: dict[str, Any] | None) -> list[Path]:
    """Packages of a mirror that is a folder on the controller; [] if it is one on the host."""
    mirror = (install or {}).get("mirror")
    if not mirror or not Path(mirror).is_dir():
        return []
    kinds = (".whl", ".tar.gz", ".zip")
    return sorted(p for p in Path(mirror).iterdir() if p.name.endswith(kinds))
