"""The stand-in nvidia-smi answers the long query as a real one does."""

from __future__ import annotations

from opsctl.onhost import gpufacts
from opsctl.onhost.doctor import texts
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


def test_the_longer_answers_read_as_those_of_a_sound_host() -> None:
    box = {
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "driver": "580.95.05",
        "cuda": "13.0",
        "gpus": [
            {"index": n, "total_mib": 97887, "used_mib": n, "processes": []} for n in range(8)
        ],
    }
    told = texts.details(nvidia_smi.answer(["-q", "-x"], box, "now")[0])
    assert told is not None and told["driver"] == "580.95.05"
    assert [card["bus"] for card in told["cards"]][:2] == ["00000000:01:00.0", "00000000:11:00.0"]
    assert {card["volatile"] for card in told["cards"]} == {None}  # this kind counts no errors
    links = texts.topology(nvidia_smi.answer(["topo", "-m"], box, "now")[0])
    assert links is not None and links["node"] == {n: n // 4 for n in range(8)}
    assert (links["links"][(0, 1)], links["links"][(0, 4)]) == ("NODE", "SYS")
    peers = texts.topology(nvidia_smi.answer(["topo", "-p2p", "r"], box, "now")[0])
    assert peers is not None and set(peers["links"].values()) == {"OK"}
