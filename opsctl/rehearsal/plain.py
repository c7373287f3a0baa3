"""Answers without a chat: /v1/completions and /generate. Pure."""

from __future__ import annotations

from typing import Any

from opsctl.rehearsal.answers import Reply, Serving, check_length, metadata, usage, words


def reply(prompt: Any, limit: int, serving: Serving, *, endless: bool) -> Reply:
    """What a plain completion or /generate answers; a list of token numbers counts as they are."""
    asked = len(prompt) if isinstance(prompt, list) else len(words(str(prompt))) + 1
    check_length(asked, serving)
    said = words(serving.answer)
    said = (said * (limit // max(1, len(said)) + 1) if endless else said)[:limit]
    full = not endless and len(said) == len(words(serving.answer))
    return Reply(None, " ".join(said), (), "stop" if full else "length", asked, len(said), 0)


def completion(answer: Reply, serving: Serving, rid: str, created: int) -> dict[str, Any]:
    return {
        "id": rid,
        "object": "text_completion",
        "created": created,
        "model": serving.served_name,
        "choices": [
            {
                "index": 0,
                "text": answer.content,
                "logprobs": None,
                "finish_reason": answer.finish,
                "matched_stop": None,
            }
        ],
        "usage": usage(answer, serving),
        "metadata": metadata(answer, serving),
    }


def generated(answer: Reply, serving: Serving, rid: str, seconds: float) -> dict[str, Any]:
    finish: dict[str, Any] = {"type": answer.finish}
    if answer.finish == "length":
        finish["length"] = answer.completion_tokens
    meta: dict[str, Any] = {
        "id": rid,
        "finish_reason": finish,
        "prompt_tokens": answer.prompt_tokens,
        "weight_version": "default",
        "completion_tokens": answer.completion_tokens,
        "cached_tokens": 0,
        "cached_tokens_details": {"device": 0, "host": 0} if serving.new else None,
        "e2e_latency": seconds,
    }
    return {
        "text": answer.content,
        "output_ids": list(range(answer.completion_tokens)),
        "meta_info": meta,
    }
