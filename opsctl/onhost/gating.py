"""The rim of the gates: looks at a service, asks it, and lets gates.py decide. Guard and `verify`
use the same."""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from typing import Any, Dict, List, Mapping, Optional, Tuple

from opsctl.onhost import gates, hostfacts, journal, learned, probes, startrecord, starts
from opsctl.onhost.holding import held
from opsctl.onhost.model import FAIL, INCONCLUSIVE, Check, Event, StartFacts
from opsctl.onhost.probes import Answer, Request
from opsctl.onhost.startup import Clock, Look
from opsctl.onhost.store import Store
from opsctl.onhost.systemd import Systemd, UnitState
from opsctl.onhost.tail import Tail, last_lines, unmarked

HEALTH_TIMEOUT = 25.0  # seconds; the engine itself gives up after 20
GPU_EVERY = 10.0  # seconds between two calls of nvidia-smi, which may take one itself
LAST_LINES = 20


class Sight:
    """One start of one service, seen until `begin` is called for the next."""

    def __init__(self, store: Store, systemd: Systemd, clock: Clock) -> None:
        self.store, self.systemd, self.clock = store, systemd, clock
        self.patient = True  # `verify` does not wait for a service to become healthy
        self.manifest: Mapping[str, Any] = {}
        self.invocation = ""
        self._before = ""
        self._reading = journal.Reading()
        self._tail: Optional[Tail] = None
        self._recent: List[str] = []
        self._gpu_at, self._gpu_used = float("-inf"), 0
        self._health_at = float("-inf")
        self._host_before: Mapping[str, Any] = {}  # a start that is about to be asked for
        self._begun: Mapping[str, Any] = {}
        self._adopted = False

    def before(self, manifest: Mapping[str, Any]) -> None:
        """Look at the host before the start of `manifest` is asked for; see `record`."""
        with suppress(OSError):  # worth no failure of the start
            self._host_before = startrecord.begun(manifest, self.store.starts())

    def begin(self, manifest: Mapping[str, Any], before: str) -> None:
        """Look at the start that comes after the invocation `before`."""
        if self._tail is not None:
            self._tail.close()
        self.manifest = learned.taught(manifest, self.store.starts())
        self._before, self.invocation = before, ""
        self._tail, self._recent, self._adopted = None, [], False
        self._begun, self._host_before = self._host_before, {}

    def adopt(self) -> None:
        """The process was there before this run: its start is read from the journal as far as it
        still holds it. The journal of weeks is not read beyond the line that says "ready"."""
        self._adopted = True
        known = starts.facts(self.store, self._state())
        if known.ready:
            self.use(known)

    # -- looking

    def look(self) -> Look:
        state = self._state()
        if not self.invocation:
            if state.job or state.up:
                return Look(state)
            lines = last_lines(self.store.unit, LAST_LINES)
            detail = f"systemd did not start it: {state.active} ({state.sub}), {state.result}"
            return Look(state, crashed=Check("unit", FAIL, detail, lines))
        found = self._read()
        crashed = self._crashed(state)
        pids = hostfacts.cgroup_pids(state.cgroup)
        return Look(
            state,
            crashed=crashed,
            ready=crashed is None and self._ready(state),
            events=found,
            samples=hostfacts.samples(pids),
            gpu_used=self._gpus(),
            ranks={name: rank.phase for name, rank in self._reading.facts.ranks.items()},
            log=list(self._recent),
        )

    def use(self, known: StartFacts) -> None:
        """Take what is known of the running start; of its journal only what comes from now on is
        read, since that of weeks would take long."""
        if self._state().invocation == known.invocation and self.invocation:
            self._reading.facts = known
            self._tail = Tail(self.store.unit, self.invocation, since="now")

    def facts(self) -> Dict[str, Any]:
        """What the journal tells of this start, as StartFacts."""
        if not self.invocation:
            self._state()
        self._read(settle=True)
        return self._reading.facts.as_json()

    def record(self) -> Dict[str, Any]:
        """What this start leaves for the forecasts after it."""
        if not self.invocation:
            self._state()
        self._read(settle=True)
        facts = self._reading.facts
        ready = startrecord.standing(facts, held(self._state().cgroup)["bytes"])
        return startrecord.record(facts, self.manifest, self._begun, ready)

    def _state(self) -> UnitState:
        state = self.systemd.show(self.store.unit)
        if not self.invocation and state.invocation not in ("", self._before):
            self.invocation = state.invocation
            self._reading = journal.Reading(state.invocation)
            self._tail = Tail(self.store.unit, state.invocation)
        return state

    def _read(self, settle: bool = False) -> List[Event]:
        found: List[Event] = []
        for record in self._tail.read(settle) if self._tail else []:
            self._recent = [*self._recent[1 - LAST_LINES :], record.text]
            found += self._reading.feed(record)
        return found

    def _crashed(self, state: UnitState) -> Optional[Check]:
        """Told at once, before systemd's own restart comes; with all that was logged."""
        facts: StartFacts = self._reading.facts
        again = state.invocation != self.invocation
        if not again and gates.crashed(facts, state.properties) is None:
            return None
        self._read(settle=True)
        if self._reading.silent and facts.began and not facts.ready:
            for record in unmarked(self.store.unit, facts.began):
                self._reading.feed(record)
        if again:
            check = gates.ended("systemd started it again", facts.errors)
        else:
            check = gates.crashed(facts, state.properties) or Check("unit", FAIL, "it ended")
        if not check.evidence:
            lines = self._recent or last_lines(self.store.unit, LAST_LINES)
            check = Check("unit", FAIL, check.detail, list(lines))
        return check

    def _ready(self, state: UnitState) -> bool:
        """The engine's own word; or, for units that log elsewhere, a healthy answer."""
        if self._reading.facts.ready:
            return True
        if not self._address:
            return state.active == "active"
        if self.clock.monotonic() - self._health_at < GPU_EVERY and self.manifest.get("ranks"):
            return False
        self._health_at = self.clock.monotonic()
        return probes.send(self._address, probes.health(), 5.0, self._key_file).status == 200

    def _gpus(self) -> int:
        if shutil.which("nvidia-smi") is None:
            return 0
        now = self.clock.monotonic()
        if now - self._gpu_at >= GPU_EVERY:
            self._gpu_at = now
            self._gpu_used = sum(int(gpu["memory_used"]) for gpu in hostfacts.gpus())
        return self._gpu_used

    # -- the gates

    def gate(self, name: str) -> Optional[Check]:
        """One gate of ORDER. None: the manifest does not ask for it."""
        if name == "unit":
            return self._unit()
        if name == "ranks":
            return self._ranks() if self.manifest.get("ranks") else None
        if name == "memory":
            return self._memory()
        if name == "soak":
            return self._soak()
        if not self._address:
            return None
        if name == "health":
            return self._health()
        return self._generated(name) if self._rules.get(name) else None

    @property
    def _rules(self) -> Mapping[str, Any]:
        return self.manifest.get("gates") or {}

    @property
    def _poll(self) -> float:
        return float(self._rules.get("poll", 2.0))

    @property
    def _address(self) -> Optional[Mapping[str, Any]]:
        return self.manifest.get("address")

    @property
    def _key_file(self) -> Optional[str]:
        name = self.manifest.get("api_key_file")
        return str(self.store.release(self.manifest["digest"]) / name) if name else None

    def _unit(self) -> Check:
        state = self._state()
        self._read(settle=True)
        return gates.unit(state.properties, self.invocation, self._reading.facts)

    def _ranks(self) -> Check:
        self._read(settle=True)
        if self._adopted and not self._reading.facts.ranks:
            detail = "nothing of its start is in the journal any more, or it logs elsewhere"
            return Check("ranks", INCONCLUSIVE, detail)
        return gates.ranks(self.manifest, self._reading.facts)

    def _health(self) -> Check:
        need = int(self._rules.get("health_in_row", 3))
        until = self.clock.monotonic() + float(self._rules.get("request_timeout", 120.0))
        answers: List[Answer] = []
        while True:
            answer, crashed = self._ask(probes.health(), HEALTH_TIMEOUT)
            if crashed is not None:
                return Check("health", FAIL, crashed.detail, crashed.evidence)
            answers.append(answer)
            check = gates.health(answers, need)
            tried = len(answers) >= need and not self.patient
            if check.status != FAIL or tried or self.clock.monotonic() > until:
                return check
            self.clock.sleep(min(self._poll, 1.0))

    def _generated(self, name: str) -> Check:
        served = self.manifest["model"].get("served_name") or self.manifest["model"]["path"]
        tokens = int(self._rules.get("max_tokens", 512))
        request: Request = getattr(probes, name)(served, tokens)
        answer, crashed = self._ask(request, float(self._rules.get("request_timeout", 120.0)))
        if crashed is not None:
            return Check(name, FAIL, crashed.detail, crashed.evidence)
        check: Check = getattr(gates, name)(answer)
        return check

    def _memory(self) -> Optional[Check]:
        rules = self.manifest.get("memory") or {}
        if "min_available" not in rules:
            return None
        gpus, processes = self.manifest.get("gpus"), None
        if shutil.which("nvidia-smi"):
            processes = hostfacts.gpu_processes(hostfacts.gpus())
        states = self.systemd.show_all(["sglang-*.service"])  # services may share a host
        pids = [pid for state in states for pid in hostfacts.cgroup_pids(state.cgroup)]
        return gates.memory(hostfacts.meminfo(), rules, processes, pids, gpus)

    def _soak(self) -> Check:
        seconds = float(self._rules.get("soak", 30.0))
        least = int((self.manifest.get("memory") or {}).get("min_available", 0))
        until = self.clock.monotonic() + seconds
        samples: List[Dict[str, Any]] = []
        while True:
            healthy = True
            if self._address:
                answer, crashed = self._ask(probes.health(), HEALTH_TIMEOUT)
                if crashed is not None:
                    return Check("soak", FAIL, crashed.detail, crashed.evidence)
                healthy = answer.status == 200
            look = self.look()
            if look.crashed is not None:
                return Check("soak", FAIL, look.crashed.detail, look.crashed.evidence)
            memory = hostfacts.meminfo()
            samples.append(
                {
                    "active": look.state.active == "active",
                    "invocation": look.state.invocation,
                    "available": memory["available"],
                    "swap_used": memory["swap_used"],
                    "healthy": healthy,
                }
            )
            if self.clock.monotonic() >= until:
                return gates.soak(samples, least, seconds)
            self.clock.sleep(self._poll)

    def _ask(self, request: Request, timeout: float) -> Tuple[Answer, Optional[Check]]:
        """The answer; or, as soon as the engine has crashed, that. A request to a dead engine
        may hang for its whole timeout, since the parent process can outlive its ranks."""
        answers: List[Answer] = []
        address, key = self._address or {}, self._key_file
        thread = threading.Thread(
            target=lambda: answers.append(probes.send(address, request, timeout, key)), daemon=True
        )
        thread.start()
        thread.join(0.5)
        while thread.is_alive():
            crashed = self.look().crashed
            if crashed is not None:
                return Answer(0), crashed
            self.clock.sleep(min(self._poll, 0.5))
        answer = answers[0] if answers else Answer(0, error="the request was lost")
        if answer.status == 0:  # refused, or cut off: it may be about to end
            self.clock.sleep(min(self._poll, 0.5))
            return answer, self.look().crashed
        return answer, None
