"""The command line of the ground floor. One JSON document on stdout; exit 1 with an "error"."""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from typing import Any, Callable, Dict, List, Optional

from opsctl.onhost.store import Places, Refused, Store
from opsctl.onhost.systemd import CallFailed, Systemd

HELD = 7
PLACES = Places()

# Modules are imported by the verb that needs them: a zipapp compiles what it imports, each time.


def _collect(given: argparse.Namespace) -> Any:
    from opsctl.onhost.collect import collect

    return collect(PLACES, Systemd(), given.service, given.probe, given.memory)


def _facts(given: argparse.Namespace) -> Any:
    from opsctl.onhost.factsverb import facts

    asked = (given.model, given.draft, given.service, given.process, given.takes_over)
    return facts(PLACES, Systemd(), *asked)


def _running(given: argparse.Namespace) -> Any:
    from opsctl.onhost.running import running

    return running(Systemd(), given.unit, given.pid, given.container)


def _doctor(given: argparse.Namespace) -> Any:
    from opsctl.onhost.doctor.examine import doctor

    return doctor(PLACES, Systemd(), _stdin().get("manifests") or [])


def _verify(given: argparse.Namespace) -> Any:
    from opsctl.onhost.verify import verify

    return verify(Store(given.service), Systemd())


def _release(given: argparse.Namespace) -> Any:
    from opsctl.onhost.kept import kept
    from opsctl.onhost.preflight import Outside

    return kept(Store(given.service), Systemd(), given.digest, Outside())


def _stage(given: argparse.Namespace) -> Any:
    from opsctl.onhost.stage import stage

    return stage(PLACES, Systemd(), _stdin(), given.check)


def _lock(given: argparse.Namespace) -> Any:
    from opsctl.onhost.locks import take

    return take(Store(given.service), Systemd(), given.owner, given.reason, given.run)


def _unlock(given: argparse.Namespace) -> Any:
    from opsctl.onhost.locks import free

    return free(Store(given.service), Systemd(), given.run, given.by, given.reason)


def _launch(given: argparse.Namespace) -> Any:
    from opsctl.onhost.launch import launch

    return launch(Store(given.service), Systemd(), _stdin())


def _park(given: argparse.Namespace) -> Any:
    from opsctl.onhost.parking import park

    return park(Store(given.service), Systemd(), _stdin())


def _guard(given: argparse.Namespace) -> Any:
    from opsctl.onhost.launch import guard

    return guard(Store(given.service), Systemd(), given.run)


def _deadman(given: argparse.Namespace) -> Any:
    from opsctl.onhost.deadman import look

    return look(Store(given.service), Systemd(), given.run)


def _recover(given: argparse.Namespace) -> Any:
    from opsctl.onhost.launch import start
    from opsctl.onhost.recover import recover

    systemd = Systemd()
    failed = recover(PLACES, systemd, lambda service, run: start(Store(service), systemd, run))
    if failed:
        raise Refused(f"{failed} services could not be settled; see the journal of this unit")
    return {"settled": True}


def _follow(given: argparse.Namespace) -> Any:
    from opsctl.onhost.follow import follow

    return follow(Store(given.service), given.run, given.first)


def _logs(given: argparse.Namespace) -> Any:
    from opsctl.onhost.logs import logs

    return logs(Store(given.service), Systemd(), given.follow, given.lines, given.all_starts)


def _history(given: argparse.Namespace) -> Any:
    from opsctl.onhost.history import history

    return history(Store(given.service), given.lines)


def _stop(given: argparse.Namespace) -> Any:
    from opsctl.onhost.remove import stop

    return stop(Store(given.service), Systemd())


def _remove(given: argparse.Namespace) -> Any:
    from opsctl.onhost.remove import remove

    return remove(Store(given.service), Systemd())


def _probe(given: argparse.Namespace) -> Any:
    from opsctl.onhost.probe import probe

    return probe(_stdin())


def _stdin() -> Dict[str, Any]:
    """Raises Refused. Its text is not repeated: it may hold secrets."""
    try:
        value = json.loads(sys.stdin.buffer.read().decode())
    except ValueError:
        raise Refused("stdin holds no JSON document") from None
    if not isinstance(value, dict):
        raise Refused("stdin holds no JSON object")
    return value


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="onhost.pyz", description=__doc__)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, do: Callable[[argparse.Namespace], Any], *names: str) -> Any:
        added = verbs.add_parser(name)
        added.set_defaults(do=do)
        for argument in names:
            added.add_argument(argument)
        return added

    collect = verb("collect", _collect)
    collect.add_argument("--service", action="append", default=[])
    collect.add_argument("--probe", action="store_true")
    collect.add_argument("--memory", action="store_true")
    facts = verb("facts", _facts)
    facts.add_argument("--model", required=True)
    facts.add_argument("--draft")
    facts.add_argument("--service", required=True)
    facts.add_argument("--process", action="store_true")
    facts.add_argument("--takes-over", default="")
    running = verb("running", _running)
    running.add_argument("--unit", default="")
    running.add_argument("--pid", type=int, default=0)
    running.add_argument("--container", default="")
    verb("doctor", _doctor)
    verb("verify", _verify, "service")
    verb("release", _release, "service", "digest")
    verb("stage", _stage).add_argument("--check", action="store_true")
    lock = verb("lock", _lock, "service")
    for name in ("--owner", "--reason", "--run"):
        lock.add_argument(name, required=True)
    unlock = verb("unlock", _unlock, "service")
    unlock.add_argument("--run", required=True)
    unlock.add_argument("--by", default="")
    unlock.add_argument("--reason", default="")
    verb("launch", _launch, "service")
    verb("park", _park, "service")
    verb("guard", _guard, "service", "run")
    verb("deadman", _deadman, "service", "run")
    verb("recover", _recover)
    verb("follow", _follow, "service", "run").add_argument(
        "--from", dest="first", type=int, default=1
    )
    logs = verb("logs", _logs, "service")
    logs.add_argument("--follow", action="store_true")
    logs.add_argument("--lines", type=int, default=0)
    logs.add_argument("--all-starts", action="store_true")
    verb("history", _history, "service").add_argument("--lines", type=int, default=10)
    verb("stop", _stop, "service")
    verb("remove", _remove, "service")
    verb("probe", _probe)
    return top


def main(argv: Optional[List[str]] = None) -> int:
    given = parser().parse_args(argv)
    try:
        answer = given.do(given)
    except Exception as error:
        return _refused(error)
    if answer is not None:
        print(json.dumps(answer))
    return 0


def _refused(error: Exception) -> int:
    """What went wrong, as JSON: a traceback could hold what stdin held."""
    if type(error).__name__ == "Held":
        print(json.dumps({"held": error.lock}))  # type: ignore[attr-defined]
        return HELD
    hint, code = "", 1
    if isinstance(error, Refused):
        hint, code = error.hint, error.code
    text = (
        str(error)
        if isinstance(error, (Refused, CallFailed))
        else f"{type(error).__name__}: {error}"
    )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        folder = os.path.dirname(error.filename or "") or str(PLACES.var)
        text = f"{error.strerror}: {error.filename or folder}"
        hint = f"make room on the host (df -h {folder}; df -i {folder}), then do the same again"
    print(json.dumps({"error": {"message": text, "hint": hint}}))
    return code


if __name__ == "__main__":
    sys.exit(main())
