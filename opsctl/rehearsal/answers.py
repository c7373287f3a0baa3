"""The bodies that the engine answers with, for the two versions. Pure.

The shapes are those of real 0.5.9 and 0.5.23 answers; the words are the scenario's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CALLS = "<|tool_calls_section_begin|>"


@dataclass(frozen=True)
class Serving:
    """What the server knows about itself when it answers."""

    version: str
    flags: Mapping[str, Any]
    served_name: str
    model: Mapping[str, Any]
    reasoning: str
    answer: str
    fault: str = ""

    @property
    def new(self) -> bool:
        return self.version == "0.5.23"


@dataclass(frozen=True)
class Reply:
    """One generated answer. Tokens are words here."""

    reasoning: str | None
    content: str | None
    calls: tuple[Mapping[str, Any], ...]
    finish: str
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int


class BadRequest(Exception):
    """Answered with 400; `kind` is the engine's own name for it."""

    def __init__(self, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.kind = kind


def error(message: str, kind: str = "BadRequestError", code: int = 400) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def words(text: str) -> list[str]:
    return text.split()


def prompt_of(body: Mapping[str, Any]) -> str:
    """All text of a chat's messages. Raises BadRequest as the engine does for a wrong type."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise BadRequest(
            "1 validation error:\n  {'type': 'list_type', 'loc': ('body', 'messages'), "
            f"'msg': 'Input should be a valid list', 'input': {messages!r}}}",
            "Bad Request",
        )
    found: list[str] = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            found.append(content)
        elif isinstance(content, list):
            found += [p.get("text", "") for p in content if isinstance(p, dict)]
    return " ".join(found)


def check_length(tokens: int, serving: Serving) -> None:
    longest = int(serving.model["context_len"])
    if tokens >= longest:
        raise BadRequest(
            f"The input ({tokens} tokens) is longer than the model's context length "
            f"({longest} tokens)."
        )


def reply(body: Mapping[str, Any], serving: Serving) -> Reply:
    """What the model would answer a chat with: thoughts, then words or a tool call."""
    prompt = prompt_of(body)
    asked = len(words(prompt)) + 3
    check_length(asked, serving)
    budget = int(body.get("max_completion_tokens") or body.get("max_tokens") or 4096)
    thinks = (body.get("chat_template_kwargs") or {}).get("thinking", True)
    thoughts = words(serving.reasoning) if thinks else []
    call = _call(body, prompt) if body.get("tools") and body.get("tool_choice") != "none" else None
    rest = [] if call else words(serving.answer)
    if body.get("ignore_eos"):
        rest = (rest * (budget // max(1, len(rest)) + 1))[: max(0, budget - len(thoughts))]
    spent_thoughts, spent_rest = thoughts[:budget], rest[: max(0, budget - len(thoughts))]
    spent = len(spent_thoughts) + (12 if call else len(spent_rest))
    cut = spent > budget or len(spent_rest) < len(rest) or bool(body.get("ignore_eos"))
    reasoning, content, calls = _parsed(
        serving, body, " ".join(spent_thoughts), " ".join(spent_rest), None if cut else call
    )
    return Reply(
        reasoning,
        content,
        calls,
        "length" if cut else ("tool_calls" if calls else "stop"),
        asked,
        min(spent, budget),
        len(spent_thoughts) if reasoning else 0,
    )


def _parsed(
    serving: Serving,
    body: Mapping[str, Any],
    thoughts: str,
    text: str,
    call: Mapping[str, Any] | None,
) -> tuple[str | None, str | None, tuple[Mapping[str, Any], ...]]:
    """What the parsers make of the model's raw text; without a parser it stays in the content."""
    calls: tuple[Mapping[str, Any], ...] = ()
    if call and serving.flags.get("tool-call-parser"):
        calls = (call,)
    elif call:
        function = call["function"]
        text = f"{CALLS}functions.{function['name']}:0 {function['arguments']}"
    separate = serving.flags.get("reasoning-parser") and body.get("separate_reasoning", True)
    if serving.fault == "empty-reasoning":
        return None, f"{thoughts} {text}".strip() or None, calls
    if separate:
        return thoughts or None, text or None, calls
    raw = f"<think>{thoughts}</think>{text}" if thoughts else text
    return None, raw or None, calls


def _call(body: Mapping[str, Any], prompt: str) -> dict[str, Any]:
    """A call of the tool asked for (or the first), its required arguments filled by type."""
    tools: list[Mapping[str, Any]] = [
        t["function"] for t in body["tools"] if isinstance(t, dict) and "function" in t
    ]
    choice = body.get("tool_choice")
    named = choice.get("function", {}).get("name") if isinstance(choice, dict) else None
    first: Mapping[str, Any] = tools[0] if tools else {"name": "?"}
    tool = next((t for t in tools if t.get("name") == named), first)
    schema = tool.get("parameters") or {}
    properties = schema.get("properties") or {}
    wanted = schema.get("required") or list(properties)
    arguments = {name: _value(properties.get(name) or {}, prompt) for name in wanted}
    name = str(tool["name"])
    return {
        "id": f"functions.{name}:0",
        "index": 0,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def _value(schema: Mapping[str, Any], prompt: str) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "string")
    if kind in ("integer", "number"):
        number = re.search(r"-?\d+", prompt)
        return int(number[0]) if number else 1
    if kind == "boolean":
        return True
    if kind == "array":
        return []
    if kind == "object":
        return {}
    names = re.findall(r"(?<=[a-z,] )[A-Z][\w-]+", prompt)
    return names[-1] if names else "rehearsal"


def usage(answer: Reply, serving: Serving) -> dict[str, Any]:
    told: dict[str, Any] = {
        "prompt_tokens": answer.prompt_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        "completion_tokens": answer.completion_tokens,
        "prompt_tokens_details": None,
        "reasoning_tokens": answer.reasoning_tokens,
    }
    return {**told, "completion_tokens_details": None} if serving.new else told


def metadata(answer: Reply, serving: Serving) -> dict[str, Any]:
    told: dict[str, Any] = {"weight_version": "default"}
    if serving.new:
        told["weight_versions"] = [
            {"version": "default", "start": 0, "end": answer.completion_tokens}
        ]
    return told


def chat(answer: Reply, serving: Serving, rid: str, created: int) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.content,
        "reasoning_content": answer.reasoning,
    }
    if answer.calls or not serving.new:
        message["tool_calls"] = list(answer.calls) or None
    return {
        "id": rid,
        "object": "chat.completion",
        "created": created,
        "model": serving.served_name,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": answer.finish,
                "matched_stop": None,
            }
        ],
        "usage": usage(answer, serving),
        "metadata": metadata(answer, serving),
    }


def deltas(answer: Reply) -> list[tuple[dict[str, Any], str | None]]:
    """The pieces of a streamed chat, with the finish reason of the last one."""
    pieces: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    pieces += [({"reasoning_content": f"{w} "}, None) for w in words(answer.reasoning or "")]
    pieces += [({"content": f"{w} "}, None) for w in words(answer.content or "")]
    pieces += [({"tool_calls": [c]}, None) for c in answer.calls]
    return [*pieces, ({}, answer.finish)]


def chunk(
    delta: Mapping[str, Any], finish: str | None, serving: Serving, rid: str, created: int
) -> dict[str, Any]:
    empty: dict[str, Any] = {"reasoning_content": None}
    if not serving.new:
        empty = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None}
    told: dict[str, Any] = {
        "id": rid,
        "object": "chat.completion.chunk",
        "created": created,
        "model": serving.served_name,
        "choices": [
            {
                "index": 0,
                "delta": {**empty, **delta},
                "logprobs": None,
                "finish_reason": finish,
                "matched_stop": None,
            }
        ],
    }
    return told if serving.new else {**told, "usage": None}
