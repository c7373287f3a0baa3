"""The gates: pure deciders over what was read, in the order ORDER.

Each gives a Check: pass, fail or inconclusive, a detail that an operator understands at 3 a.m.,
and the decisive lines. What cannot be judged is inconclusive, never pass.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

from .causes import classify
from .expect import count, gib
from .model import FAIL, INCONCLUSIVE, PASS, Check, StartFacts, waits
from .probes import TOOL, Answer
from .rankgate import ranks
from .records import harmless
from .wording import SYSTEMD, parse_prefix, read

ORDER = ("unit", "ranks", "health", "generation", "reasoning", "tools", "memory", "soak")

__all__ = [
    "ORDER", "crashed", "generation", "health", "memory", "ranks", "reasoning", "soak", "tools",
    "unit",
]  # fmt: skip

# Marks that models wrap tool calls in. In the content they show that the parser did not read them.
_TOOL_MARKS = (
    "<|tool_call", "<tool_call", "<|tool_calls_section", "functions.get_weather", "[TOOL_CALLS]",
    "<|python_tag|>", "<function=", '"name": "get_weather"', "<｜tool",
)  # fmt: skip


def unit(show: Mapping[str, str], invocation: str, facts: StartFacts) -> Check:
    """This invocation is running, was not restarted, and met no OOM killer.

    `show` holds systemctl's properties: ActiveState, SubState, Result, NRestarts, InvocationID.
    """
    if show.get("ActiveState") == "inactive" and show.get("Result", "success") == "success":
        return Check("unit", FAIL, "the unit is stopped", list(facts.errors))
    dead = crashed(facts, show)
    if dead is not None:
        return Check("unit", FAIL, dead.detail, dead.evidence)
    state = f"{show.get('ActiveState', 'unknown')} ({show.get('SubState', 'unknown')})"
    evidence = [f"ActiveState={show.get('ActiveState')}", f"NRestarts={show.get('NRestarts')}"]
    if show.get("ActiveState") != "active" or show.get("SubState") != "running":
        return Check("unit", FAIL, f"the unit is {state}, not active (running)", evidence)
    running = show.get("InvocationID", "")
    if invocation and running != invocation:
        detail = "the unit was started again since: another invocation is running"
        return Check("unit", FAIL, detail, [f"InvocationID={running}, expected {invocation}"])
    restarts = int(show.get("NRestarts") or 0)
    if restarts or facts.restarts:
        detail = f"systemd restarted the unit {count(max(restarts, facts.restarts))} times"
        return Check("unit", FAIL, detail, evidence)
    return Check("unit", PASS, "this start is running; no restarts, no OOM kill", evidence)


def by_hand(release: Mapping[str, Any], show: Mapping[str, str]) -> Dict[str, str]:
    """What a hand changed of the unit that systemd has loaded, in words: "gone", "edited",
    "dropins", "stale".

    `release`: {"running", "confirmed", "edited"} as `collect` tells it. A hand at the unit file or
    a drop-in changes what runs without changing any digest.
    """
    found: Dict[str, str] = {}
    own, active = dropins(show), show.get("ActiveState") == "active"
    if release.get("running") is None and (active or release.get("confirmed")):
        until = "; the engine runs until it is stopped" if active else ""
        found["gone"] = f"the unit file is gone{until}"
    if release.get("edited"):
        found["edited"] = "the unit file was edited by hand"
    if own:
        found["dropins"] = f"drop-ins change the unit: {', '.join(own)}"
    if show.get("NeedDaemonReload") == "yes":
        found["stale"] = (
            "the files on disk are not what systemd has loaded (systemctl daemon-reload)"
        )
    return found


def dropins(show: Mapping[str, str]) -> List[str]:
    """Those of this unit alone: a vendor's for all services are the host's."""
    return [p for p in show.get("DropInPaths", "").split() if f"/{show.get('Id', '')}.d/" in p]


def drift(release: Mapping[str, Any], show: Mapping[str, str]) -> Check:
    """Whether the unit that systemd has loaded is the one of its release, and nothing else."""
    found = by_hand(release, show)
    if found:
        return Check("drift", FAIL, "; ".join(found.values()), dropins(show))
    return Check("drift", PASS, "the unit is its release's: no hand edits, no drop-ins")


def crashed(facts: StartFacts, show: Mapping[str, str]) -> Optional[Check]:
    """A failed check as soon as the start is over; None while it may still become ready.

    Errors alone are no crash: the engine catches some. A dead process, or a line that the engine
    does not survive, is one, even if systemd still says active (the parent may outlive its ranks).
    """
    state, result = show.get("ActiveState", ""), show.get("Result", "")
    over = state in ("failed", "inactive") or waits(show.get("SubState", ""))
    if not (over or facts.dead or result == "oom-kill"):
        return None
    evidence = list(facts.errors)
    if result == "oom-kill" and not any("oom-kill" in line for line in evidence):
        evidence.append("Result=oom-kill")
    how = facts.exit or (f"unit {state}, result {result}" if over else "")
    return ended(how, evidence)


def ended(how: str, evidence: Sequence[str]) -> Check:
    """The engine ended: `how`, and the decisive lines, the cause first."""
    said = f"the engine ended ({how})" if how else "the engine ended"
    if not evidence:
        return Check("unit", FAIL, f"{said} without a word in the journal")
    cause = classify(parse_prefix(evidence[0]).rest)
    if cause is not None:
        said = f"{said}: {cause.words}: {evidence[0]}"
    elif read(SYSTEMD, evidence[0])[0]:
        said = f"{said} without a word of its own in the journal"
    else:
        said = f"{said}; its last words: {evidence[0]}"
    return Check("unit", FAIL, said, list(evidence))


def health(answers: Sequence[Answer], need: int = 3) -> Check:
    """The last `need` answers are all 200. One alone proves little: see the engine's /health."""
    shown = [_answered(answer) for answer in answers[-need:]]
    good = 0
    for answer in reversed(answers):
        if answer.status != 200:
            break
        good += 1
    if good >= need:
        return Check("health", PASS, f"{need} healthy answers in a row", shown)
    last = shown[-1] if shown else "not asked"
    return Check("health", FAIL, f"{good} of {need} healthy answers in a row; last: {last}", shown)


def generation(answer: Answer) -> Check:
    """At least one token was generated. The text's sense is not judged."""
    choice, problem = _choice("generation", answer)
    if problem is not None:
        return problem
    tokens = _dict(answer.json().get("usage")).get("completion_tokens")
    if not isinstance(tokens, int) or tokens < 1 or not isinstance(choice.get("text"), str):
        return Check("generation", FAIL, "the answer holds no generated tokens", [_excerpt(answer)])
    detail = f"{count(tokens)} tokens in {answer.seconds:.1f} s"
    return Check("generation", PASS, detail, [_quote(choice["text"])])


def reasoning(answer: Answer) -> Check:
    """The reasoning parser split the answer: reasoning_content and content are both filled."""
    choice, problem = _choice("reasoning", answer)
    if problem is not None:
        return problem
    message = _dict(choice.get("message"))
    thought, content = message.get("reasoning_content"), message.get("content")
    evidence = [f"reasoning_content: {_quote(thought)}", f"content: {_quote(content)}"]
    if not thought:
        return Check("reasoning", FAIL, "reasoning_content is empty", evidence)
    if not content:
        if choice.get("finish_reason") == "length":
            detail = "the model was still thinking when gates.max_tokens ended; raise it"
            return Check("reasoning", INCONCLUSIVE, detail, evidence)
        return Check("reasoning", FAIL, "content is empty after the reasoning", evidence)
    return Check("reasoning", PASS, "reasoning_content and content are filled", evidence)


def tools(answer: Answer) -> Check:
    """The tool-call parser made a call of the right name with valid JSON arguments.

    No call at all fails too: a parser that drops the call looks just like that (sglang 23341).
    """
    choice, problem = _choice("tools", answer)
    if problem is not None:
        return problem
    message = _dict(choice.get("message"))
    calls, content = message.get("tool_calls"), str(message.get("content") or "")
    finish = choice.get("finish_reason")
    evidence = [f"finish_reason: {finish}", f"tool_calls: {_quote(json.dumps(calls))}"]
    if not isinstance(calls, list) or not calls:
        evidence.append(f"content: {_quote(content)}")
        if finish == "length":
            detail = "no tool call before gates.max_tokens ended; raise it"
            return Check("tools", INCONCLUSIVE, detail, evidence)
        raw = any(mark in content for mark in _TOOL_MARKS)
        detail = (
            "the call stands raw in the content: the parser did not read it"
            if raw
            else ("no tool call was parsed")
        )
        return Check("tools", FAIL, detail, evidence)
    wrong = _call_problem(calls[0], finish)
    if wrong:
        return Check("tools", FAIL, wrong, evidence)
    return Check("tools", PASS, "a tool call was parsed: right name, valid arguments", evidence)


def _call_problem(call: Any, finish: Any) -> str:
    function = _dict(_dict(call).get("function"))
    wanted = TOOL["function"]["name"]  # type: ignore[index]
    if function.get("name") != wanted:
        return f"the call names {function.get('name')!r}, not {wanted!r}"
    try:
        arguments = json.loads(function.get("arguments") or "")
    except (TypeError, ValueError):
        return "the call's arguments are no JSON"
    if not isinstance(arguments, dict) or not isinstance(arguments.get("city"), str):
        return "the call's arguments lack the city"
    return "" if finish == "tool_calls" else f"finish_reason is {finish!r}, not 'tool_calls'"


def memory(
    meminfo: Mapping[str, int],
    rules: Mapping[str, Any],
    gpu_processes: Optional[Iterable[Mapping[str, Any]]],
    pids: Iterable[int],
    gpus: Optional[Sequence[int]] = None,
) -> Check:
    """MemAvailable ≥ threshold, swap as ruled, and only our processes on our GPUs.

    MemAvailable alone is judged: "free" leaves the page cache out, and "used" means different
    things in procps 3 and 4. `gpu_processes` None: this host has no nvidia-smi.
    """
    least = int(rules["min_available"])
    figures = (
        f"{gib(meminfo['available'])} available of {gib(meminfo['total'])}, "
        f"{gib(meminfo['swap_used'])} of swap in use"
    )
    problems = []
    if meminfo["available"] < least:
        problems.append(
            f"{gib(meminfo['available'])} available, {gib(least)} demanded by memory.min_available"
        )
    if rules.get("swap") == "forbid" and meminfo["swap_used"] > 0:
        problems.append(f"{gib(meminfo['swap_used'])} of swap is in use, memory.swap forbids it")
    ours = set(pids)
    strangers = [
        f"process {process['pid']} holds {gib(process['memory'])} of GPU {process['gpu']}"
        for process in gpu_processes or []
        if process["pid"] > 0
        and process["pid"] not in ours
        and (gpus is None or process["gpu"] < 0 or process["gpu"] in gpus)
    ]
    if strangers:
        problems.append("processes that are not ours are on the GPUs")
    if problems:
        return Check("memory", FAIL, "; ".join(problems), [figures, *strangers])
    return Check("memory", PASS, figures, [figures])


def soak(samples: Sequence[Mapping[str, Any]], least: int, seconds: float) -> Check:
    """The service stayed good: same invocation, active, enough memory, healthy.

    A sample is {"active", "invocation", "available", "swap_used", "healthy"}. One unhealthy answer
    alone is let pass (/health fails under a long prefill), two in a row or the last one are not.
    """
    if not samples:
        return Check("soak", INCONCLUSIVE, "no sample was taken")
    problems: List[str] = []
    if not all(sample["active"] for sample in samples):
        problems.append("the unit did not stay active")
    if len({sample["invocation"] for sample in samples}) > 1:
        problems.append("the unit was restarted")
    lowest = min(int(sample["available"]) for sample in samples)
    if lowest < least:
        problems.append(f"MemAvailable fell to {gib(lowest)}, {gib(least)} demanded")
    sick = [not sample["healthy"] for sample in samples]
    if sick[-1] or any(one and two for one, two in zip(sick, sick[1:])):  # noqa: RUF007 (3.9)
        problems.append(f"{sum(sick)} of {len(sick)} health answers were bad")
    if problems:
        return Check("soak", FAIL, "; ".join(problems))
    detail = f"stayed good for {seconds:.0f} s; least MemAvailable {gib(lowest)}"
    return Check("soak", PASS, detail)


# -- shared -------------------------------------------------------------------------------------


def _choice(gate: str, answer: Answer) -> "tuple[Dict[str, Any], Optional[Check]]":
    """The first choice of an OpenAI answer, or the failed check that says why there is none."""
    if answer.status != 200:
        return {}, Check(gate, FAIL, f"no answer: {_answered(answer)}", [_excerpt(answer)])
    body = answer.json()
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return {}, Check(gate, FAIL, "the answer holds no choice", [_excerpt(answer)])
    return choices[0], None


def _dict(value: Any) -> Dict[str, Any]:
    """Engines of other hands answer anything; what is no object has no fields."""
    return value if isinstance(value, dict) else {}


def _answered(answer: Answer) -> str:
    if answer.status == 0:
        return answer.error or "no answer"
    return f"HTTP {answer.status} in {answer.seconds:.1f} s"


def _excerpt(answer: Answer) -> str:
    return _quote(answer.text()) if answer.status else answer.error


def _quote(text: Any) -> str:
    if text is None:
        return "null"
    shown = harmless(" ".join(str(text).split()))
    return json.dumps(shown if len(shown) <= 200 else shown[:200] + "…", ensure_ascii=False)
