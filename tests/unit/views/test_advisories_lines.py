"""Advisories for a terminal and for programs."""

from opsctl.engine.advisories import Advisory
from opsctl.views import advisories

ONE = Advisory("tier-off", "critical", "It \x1b[31mfails.", "Seen.", "Do that.", ("r",))
TWO = Advisory("maybe", "info", "Perhaps.", "Seen.", "Look.", ("r",), certain=False)


def test_two_lines_each() -> None:
    found = [text for text, _ in advisories.lines([ONE, TWO])]
    assert found[0].startswith("! critical tier-off: It ")
    assert "\x1b" not in found[0]
    assert found[1:] == [
        "  → Do that.",
        "i info maybe: Perhaps. (if it applies: a fact is missing that decides)",
        "  → Look.",
    ]


def test_entries() -> None:
    assert advisories.entries([TWO]) == [
        {
            "id": "maybe",
            "severity": "info",
            "text": "Perhaps.",
            "symptom": "Seen.",
            "advice": "Look.",
            "reference": ["r"],
            "certain": False,
        }
    ]
