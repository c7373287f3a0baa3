"""The command that runs a playbook again as it was run, so that a `next:` can be typed. Pure.

Words come back as they were given, but for --check and for extra variables that are not a
playbook's own: their values may be secrets, and are named instead.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ansible.parsing.splitter import parse_kv
from ansible.parsing.utils.yaml import from_yaml

EXTRA = ("-e", "--extra-vars")
ONCE = ("-C", "--check", "-D", "--diff")
OWN = ("opsctl_", "nvidia_driver_")
NOT_SHOWN = ("nvidia_driver_repository",)  # an address may hold a password


def again(argv: Sequence[str], playbook: str) -> str:
    """`argv`: of this process; `playbook`: the name of its file. "" if another program runs it."""
    if not argv or not Path(argv[0]).name.startswith("ansible-playbook"):
        return ""
    words, hidden = _told(argv)
    return _joined(words, hidden) if any(Path(word).name == playbook for word in words) else ""


def beside(argv: Sequence[str], playbook: str, other: str) -> str:
    """The command that runs another playbook, of the same folder, as this one was run. "" if
    another program runs it. Of what is not shown only a connection's own is asked for again."""
    if not again(argv, playbook):
        return ""
    words, hidden = _told(argv)
    named = [str(Path(w).with_name(other)) if Path(w).name == playbook else w for w in words]
    return _joined(named, [name for name in hidden if name.startswith("ansible_")])


def _told(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that may be shown, and the names of variables that may not."""
    words, hidden = ["ansible-playbook"], list[str]()
    for word, extra in _parted(argv[1:]):
        if extra is None:
            words += [] if word in ONCE else [word]
            continue
        shown, left = _shown(extra)
        words += ["-e", shown] if shown else []
        hidden += left
    return words, hidden


def _joined(words: Sequence[str], hidden: Sequence[str]) -> str:
    return shlex.join(words) + (f" (and -e {', '.join(hidden)}, as before)" if hidden else "")


def _parted(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Each word; of extra variables what is given."""
    rest = iter(words)
    for word in rest:
        option, sign, value = word.partition("=")
        if word in EXTRA:
            yield word, next(rest, "")
        elif option == EXTRA[1] and sign:
            yield option, value
        elif word.startswith("-e") and not word.startswith("--"):
            yield "-e", word[2:]
        else:
            yield word, None


def _shown(text: str) -> tuple[str, list[str]]:
    """What may be shown of extra variables, and the names of the others. A file is only named."""
    if text.startswith("@"):
        return text, []
    try:
        given = from_yaml(text) if text.lstrip()[:1] in ("{", "[") else parse_kv(text)
        values = {str(key): value for key, value in dict(given).items()}
    except Exception:  # whatever Ansible has made of it: it is not shown
        return "", ["…"]
    hidden = [k for k in values if not k.startswith(OWN) or k in NOT_SHOWN]
    if not hidden:
        return text, []
    return " ".join(f"{k}={_plain(v)}" for k, v in values.items() if k not in hidden), hidden


def _plain(value: object) -> str:
    """Of key=value Ansible makes a text, which its filters read as what it was."""
    return shlex.quote(str(value).lower() if isinstance(value, bool) else str(value))
