"""Bodies: the keys of real answers of both versions; what the parsers make of the same words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsctl.rehearsal import answers, info, plain
from opsctl.rehearsal.answers import BadRequest, Serving

PARSERS = {"reasoning-parser": "kimi_k2", "tool-call-parser": "kimi_k2"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
ASK = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}]}
# Keys of answers that real engines gave, in their order.
OLD_MESSAGE = ["role", "content", "reasoning_content", "tool_calls"]
NEW_MESSAGE = ["role", "content", "reasoning_content"]
OLD_USAGE = [
    *("prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details"),
    "reasoning_tokens",
]


def serving(version: str = "0.5.9", fault: str = "", **flags: Any) -> Serving:
    model = {
        "context_len": 2048,
        "vision": False,
        "model_type": "llama",
        "type": "LlamaForCausalLM",
        "max_running_requests": 48,
    }
    given = {"model-path": "/m", **{k.replace("_", "-"): v for k, v in flags.items()}}
    return Serving(version, given, "kimi-k2.5", model, "I think so.", "It is so.", fault)


def chat(body: dict[str, Any], told: Serving) -> dict[str, Any]:
    return answers.chat(answers.reply(body, told), told, "id", 1)


@pytest.mark.parametrize(
    ("version", "message", "usage"),
    [
        ("0.5.9", OLD_MESSAGE, OLD_USAGE),
        ("0.5.23", NEW_MESSAGE, [*OLD_USAGE, "completion_tokens_details"]),
    ],
)
def test_a_chat_has_the_keys_of_its_version(
    version: str, message: list[str], usage: list[str]
) -> None:
    told = chat(ASK, serving(version, **PARSERS))
    assert list(told) == ["id", "object", "created", "model", "choices", "usage", "metadata"]
    assert list(told["choices"][0]["message"]) == message
    assert list(told["usage"]) == usage


@pytest.mark.parametrize(
    ("flags", "body", "reasoning", "content"),
    [
        (PARSERS, {}, "I think so.", "It is so."),
        ({}, {}, None, "<think>I think so.</think>It is so."),
        (PARSERS, {"chat_template_kwargs": {"thinking": False}}, None, "It is so."),
        (PARSERS, {"separate_reasoning": False}, None, "<think>I think so.</think>It is so."),
        (PARSERS, {"max_tokens": 2}, "I think", None),
    ],
)
def test_reasoning(
    flags: dict[str, str], body: dict[str, Any], reasoning: str | None, content: str | None
) -> None:
    message = chat({**ASK, **body}, serving(**flags))["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (reasoning, content)


def test_a_tool_is_called_with_its_required_arguments() -> None:
    choice = chat({**ASK, "tools": [WEATHER]}, serving(**PARSERS))["choices"][0]
    call = choice["message"]["tool_calls"][0]["function"]
    assert choice["finish_reason"] == "tool_calls"
    assert call["name"] == "get_weather"
    assert json.loads(call["arguments"]) == {"city": "Paris"}


def test_without_its_parser_a_tool_call_stays_text() -> None:
    message = chat({**ASK, "tools": [WEATHER]}, serving())["choices"][0]["message"]
    assert message["tool_calls"] is None
    assert "<|tool_calls_section_begin|>" in message["content"]


def test_the_fault_of_empty_reasoning() -> None:
    told = serving(fault="empty-reasoning", **PARSERS)
    assert chat(ASK, told)["choices"][0]["message"]["reasoning_content"] is None


def test_a_stream_says_what_the_whole_answer_says() -> None:
    told = serving(**PARSERS)
    whole = answers.reply(ASK, told)
    pieces = answers.deltas(whole)
    assert "".join(d.get("reasoning_content") or "" for d, _ in pieces).strip() == "I think so."
    assert "".join(d.get("content") or "" for d, _ in pieces).strip() == "It is so."
    assert [finish for _, finish in pieces if finish] == ["stop"]


def test_bad_requests_are_refused_in_the_engines_words() -> None:
    with pytest.raises(BadRequest, match="Input should be a valid list"):
        answers.reply({"messages": "x"}, serving())
    with pytest.raises(BadRequest, match=r"The input \(30000 tokens\) is longer than"):
        plain.reply([0] * 30000, 8, serving(), endless=False)


@pytest.mark.parametrize(
    ("path", "key", "admin", "header", "allowed"),
    [
        ("/v1/models", None, None, "", True),
        ("/v1/models", "k", None, "", False),
        ("/v1/models", "k", None, "Bearer k", True),
        ("/v1/models", "k", None, "bearer other", False),
        ("/health", "k", None, "", True),
        ("/metrics", "k", None, "", True),
        ("/flush_cache", "k", "a", "Bearer k", False),
        ("/flush_cache", "k", "a", "Bearer a", True),
    ],
)
def test_who_may_ask(
    path: str, key: str | None, admin: str | None, header: str, allowed: bool
) -> None:
    assert info.auth(path, key, admin, header) is allowed


def test_the_arguments_are_printed_as_each_version_prints_them_secrets_too() -> None:
    args = info.server_args(serving(api_key="canary"))
    assert info.printed(args, new=False).startswith("server_args=ServerArgs(model_path='/m', ")
    assert "api_key='canary'" in info.printed(args, new=False)
    assert info.printed(args, new=True).startswith("server_args={'model_path': '/m', ")
