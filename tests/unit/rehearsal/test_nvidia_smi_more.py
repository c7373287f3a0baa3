"""The stand-in nvidia-smi answers the long query as a real one does."""

from __future__ import annotations

from opsctl.onhost import gpufacts
from opsctl.rehearsal import nvidia_smi


def test_the_long_query_gives_links_and_capability() -> None:
    box = {
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "driver": "580.95.05",
        "cuda": "13.0",
        "compute_capability": "12.0",
        "gpus": [{"index": n, "total_mib": 97887, "used_mib": n, "processes": []} for n in (0, 1)],
    }
    printed, code = nvidia_smi.answer(gpufacts.query()[1:], box, "now")
    found = gpufacts.parse(printed)
    assert code == 0 and found is not None
    assert [card["index"] for card in found] == [0, 1]
    assert {card["state"] for card in found} == {"ok"}
    assert {tuple(card["capability"]) for card in found} == {(12, 0)}
    assert found[0]["link"] == {"generation": 5, "width": 16}
    assert found[1]["bus"] == "00000000:11:00.0"
