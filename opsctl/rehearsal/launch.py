"""The stand-in's `python -m sglang.launch_server`: starts the ranks, then serves, then drains."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from opsctl.rehearsal import cmdline, info, process, rank, server, timeline, warmup
from opsctl.rehearsal.answers import Serving
from opsctl.rehearsal.ranks import Rank, ranks
from opsctl.rehearsal.scenario import ScenarioError, installed
from opsctl.rehearsal.state import UP, State

log = logging.getLogger("sglang.launch_server")


@dataclass(frozen=True)
class Worker:
    """A rank's process. It says on `ready` that it is; rank 0 logs what is sent to `requests`."""

    rank: Rank
    pid: int
    ready: int
    requests: int


def installed_version() -> str:
    """The version that this wheel stands in for: 0.5.9 of 0.5.9+rehearsal."""
    return importlib.metadata.version("sglang").partition("+")[0]


def main(argv: Sequence[str] | None = None, version: str | None = None) -> NoReturn:
    version = version or installed_version()
    process.log_as("")
    log.info("REHEARSAL: no model is loaded, every figure below comes from a scenario file.")
    flags = cmdline.parse(version, sys.argv[1:] if argv is None else list(argv))
    try:
        scenario = installed()
        if scenario.engine != version:
            raise ScenarioError(
                f"scenario {scenario.name} has the lines of {scenario.engine}, not of {version}"
            )
        start = timeline.Start(scenario, flags, scenario.active_fault(flags))
        plans = [(r, timeline.steps(start, r)) for r in ranks(flags)]
    except ScenarioError as error:
        log.error(f"REHEARSAL: {error}")
        sys.exit(1)
    run(start, plans)


def run(start: timeline.Start, plans: list[tuple[Rank, list[timeline.Step]]]) -> NoReturn:
    scenario = start.scenario
    serving = serving_of(start)
    args = info.server_args(serving)
    log.info(info.printed(args, serving.new))
    log.info(f"REHEARSAL: scenario {scenario.name}, one second of it takes {scenario.clock} s.")
    workers = [fork_rank(r, steps, start) for r, steps in plans]
    fork_detokenizer()
    pids = [w.pid for w in workers]
    signal.signal(
        signal.SIGQUIT,
        lambda *_: _die(
            "Received sigquit from a child process. It usually means the child failed."
        ),
    )
    for worker in workers:
        if not os.read(worker.ready, 1):
            log.error(
                f"Rank {worker.rank.number} scheduler is dead. "
                "Please check if there are relevant logs."
            )
            kill_tree()
    serve_until_stopped(start, serving, workers, pids)


def serving_of(start: timeline.Start) -> Serving:
    scenario, flags = start.scenario, start.flags
    return Serving(
        scenario.engine,
        flags,
        str(flags.get("served-model-name") or flags["model-path"]),
        scenario.model,
        str(scenario.serving["reasoning"]),
        str(scenario.serving["answer"]),
        start.fault.kind if start.fault else "",
    )


def fork_rank(r: Rank, steps: list[timeline.Step], start: timeline.Start) -> Worker:
    """A fork stands for the engine's spawn: a process of its own, with its own name and PID."""
    requests, to_rank = os.pipe()
    ready, tell_ready = os.pipe()
    pid = os.fork()
    if pid:
        os.close(requests)
        os.close(tell_ready)
        return Worker(r, pid, ready, to_rank)
    os.close(to_rank)
    os.close(ready)
    try:
        process.die_with_parent()
        process.rename("sglang::scheduler" + r.prefix.replace(" ", "_"))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        process.log_as(r.prefix)
        clock, model = start.scenario.clock, Path(str(start.flags["model-path"]))
        rank.play(steps, r, clock, model, tell_ready)
        rank.serve(requests, start.scenario.engine == "0.5.23")
    finally:
        os._exit(1)


def fork_detokenizer() -> None:
    if os.fork():
        return
    process.die_with_parent()
    process.rename("sglang::detokenizer")
    while True:
        signal.pause()


def serve_until_stopped(
    start: timeline.Start, serving: Serving, workers: list[Worker], pids: list[int]
) -> NoReturn:
    scenario, flags = start.scenario, start.flags
    clock, timing = scenario.clock, scenario.timing
    state = State(
        serving,
        scenario.gpu_figures(flags),
        pace=clock / float(timing["tokens_per_second"]),
        look=clock * float(timing["health"]),
        patience=max(1.0, clock * 20),
        alive=lambda: all(_runs(p) for p in pids),
        tell=lambda batch: _tell(workers[0], batch),
    )
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(
        signal.SIGQUIT,
        lambda *_: _die(
            "SIGQUIT received. signum=None, frame=None. It usually means one child failed."
        ),
    )
    host, port = str(flags.get("host") or "127.0.0.1"), int(flags.get("port") or 30000)
    log.info(f"INFO:     Started server process [{os.getpid()}]")
    log.info("INFO:     Waiting for application startup.")
    log.info("INFO:     Application startup complete.")
    try:
        served = server.serve(host, port, state)
    except OSError as error:
        log.error(
            f"ERROR:    [Errno {error.errno}] error while attempting to bind on address "
            f"('{host}', {port}): {(error.strerror or '').lower()}"
        )
        kill_tree()
    log.info(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
    if not flags.get("skip-server-warmup"):
        warmup.run(host, port, state, wait=clock * float(timing["warmup"]))
    state.status = UP
    log.info("The server is fired up and ready to roll!")
    stop.wait()
    drain(state, clock * float(timing["drain_poll"]))
    if serving.new:
        end_politely(served, pids)
    kill_tree()


def drain(state: State, poll: float) -> None:
    """Let running requests finish, in the engine's words; it looks every five seconds."""
    log.warning("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
    state.stopping = True
    time.sleep(poll)
    while True:
        rids = list(state.running)
        log.info(
            f"Gracefully exiting... Remaining number of requests {len(rids)}. "
            f"Remaining requests remaining_rids={rids}."
        )
        if not rids:
            return
        time.sleep(poll)


def end_politely(served: server.Server, pids: list[int]) -> NoReturn:
    """0.5.23 ends its children, lets uvicorn shut down and exits with 0."""
    pid = os.getpid()
    called = f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}"
    log.info(called)
    for child in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    for line in (
        "Shutting down",
        "Waiting for background tasks to complete. (CTRL+C to force quit)",
        "Waiting for application shutdown.",
        "Application shutdown complete.",
        f"Finished server process [{pid}]",
    ):
        log.info(f"INFO:     {line}")
    served.server_close()
    log.info(called)
    sys.exit(0)


def kill_tree() -> NoReturn:
    """The end of 0.5.9, orderly or not: it kills its children, then itself, with SIGKILL.

    The children go by themselves: they asked the kernel to die with their parent.
    """
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _die(message: str) -> NoReturn:
    log.error(message)
    kill_tree()


def _runs(pid: int) -> bool:
    """False once a rank has ended, be it a zombie that nobody waited for."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def _tell(worker: Worker, batch: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(worker.requests, json.dumps(batch).encode() + b"\n")
