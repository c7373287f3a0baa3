"""What the catalogue knows of one option of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsctl.engine.jsonforms import Form, form_of

# kind: what the engine's parser makes of the text
#   switch        no value; there or not there            onoff   --NAME and --no-NAME
#   int, float    a number                                size    a whole number, or 25k, 16Ki, …
#   text          text, perhaps one of `choices`          nullable  text; "" and "None" mean unset
#   json          any JSON                                json_list  JSON, a list
#   json_text     text for the parser, JSON for the engine (`form`)
#   graph_config  JSON: {"decode"|"prefill": {setting: value}}
#   lora          PATH, NAME=PATH, or JSON with lora_name and lora_path
#   void          accepted by the engine and without any effect
#   refused       known to the engine only to end with a message
JSON_KINDS = frozenset({"json", "json_list", "graph_config"})


@dataclass(frozen=True)
class Flag:
    """One option. `name` is canonical: the same in all versions, without the leading dashes.

    `nargs`: "" one value, "?" at most one, "*" any number, "+" at least one.
    `deprecated`: None if it is not; else what to use in its place, "" if the engine does not say.
    `default`: as the parser has it; None where the engine decides later, also of a switch.
    `fallback`: what an unset value becomes where nothing else in the engine decides (0.5.20 on).
    `form`: what mapping it holds, and what may stand in its place; None: not known, or no JSON.
    """

    name: str
    kind: str
    aliases: tuple[str, ...] = ()
    dest: str = ""
    nargs: str = ""
    choices: tuple[Any, ...] = ()
    default: Any = None
    fallback: Any = None
    deprecated: str | None = None
    form: Form | None = None

    @property
    def many(self) -> bool:
        return self.nargs in ("*", "+")

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


def from_data(name: str, entry: Mapping[str, Any], version: str) -> Flag:
    form = form_of(name, version)
    kind = entry["kind"]
    return Flag(
        name=name,
        kind="json_text" if kind == "text" and form is not None else kind,
        aliases=tuple(entry.get("aliases", ())),
        dest=entry.get("dest", name.replace("-", "_")),
        nargs=entry.get("nargs", ""),
        choices=tuple(entry.get("choices", ())),
        default=entry.get("default", False if kind == "switch" else None),
        fallback=entry.get("fallback"),
        deprecated=entry.get("deprecated"),
        form=form,
    )
