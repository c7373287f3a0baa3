"""The lab's own decisions: what it refuses, and the inventory that it writes."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import yaml

from opsctl import lab
from opsctl.errors import OpsctlError
from opsctl.lab import inventory, rehearse, shell


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_DIR", str(tmp_path))
    (tmp_path / "hosts" / "h1").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (("Darwin", True, [], True), "a lab needs Linux, this is Darwin"),
        (("Linux", False, [], True), "a lab needs root"),
        (("Linux", True, ["mmdebstrap", "nft"], False), "needs mmdebstrap, nft, and there is no"),
    ],
)
def test_where_hosts_cannot_be_booted_it_says_why(
    machine: tuple[str, bool, list[str], bool], words: str
) -> None:
    with pytest.raises(OpsctlError, match=words) as told:
        shell.check(*machine)
    assert told.value.hint


def test_missing_packages_are_no_problem_where_apt_can_get_them() -> None:
    shell.check("Linux", True, ["mmdebstrap"], apt=True)


@pytest.mark.parametrize("count", [0, 51])
def test_the_number_of_hosts_is_bounded(count: int) -> None:
    with pytest.raises(OpsctlError, match="1 to 50 hosts"):
        lab.up(count)


@pytest.mark.parametrize(
    ("host", "words"),
    [("gpu1", "no lab host is called 'gpu1'"), ("h2", "h2 does not exist")],
)
def test_an_unknown_host_is_refused(folder: Path, host: str, words: str) -> None:
    for call in (
        lambda: lab.scenario(host, "reference"),
        lambda: lab.drill("cut", host),
        lambda: lab.ssh(host, ["true"]),
    ):
        with pytest.raises(OpsctlError, match=words):
            call()


def test_a_misspelt_scenario_gets_the_nearest_name(folder: Path) -> None:
    with pytest.raises(OpsctlError, match="no scenario 'silent-rnak'") as told:
        lab.scenario("h1", "silent-rnak")
    assert told.value.hint == "did you mean silent-rank?"


def test_an_unknown_drill_is_refused(folder: Path) -> None:
    with pytest.raises(OpsctlError, match="no drill 'explode'; there are: cut, mend"):
        lab.drill("explode", "h1")


def test_a_version_without_a_scenario_is_refused() -> None:
    with pytest.raises(OpsctlError, match=r"no scenario has the lines of SGLang 0\.5\.7"):
        lab.up(1, "0.5.7")


@pytest.mark.parametrize(
    ("version", "group", "service"), [("0.5.9", "kimi", "kimi"), ("0.5.23", "tiny", "tiny")]
)
def test_the_inventory_names_hosts_and_a_service(
    tmp_path: Path, version: str, group: str, service: str
) -> None:
    path = inventory.write(tmp_path, ["h1", "h12"], version)
    hosts = yaml.safe_load((path / "hosts.yml").read_text())[group]["hosts"]
    described = yaml.safe_load((path / "group_vars" / f"{group}.yml").read_text())
    assert hosts == {
        "h1": {"ansible_host": f"{shell.network()}.11"},
        "h12": {"ansible_host": f"{shell.network()}.22"},
    }
    engine = described["sglang_services"][service]["engine"]
    assert engine["version"] == version
    assert Path(engine["install"]["requirements"]).is_file()
    assert list(Path(engine["install"]["mirror"]).glob("sglang-*.whl"))


def test_edits_of_a_description_stay(tmp_path: Path) -> None:
    described = inventory.write(tmp_path, ["h1"], "0.5.9") / "group_vars" / "kimi.yml"
    edited = described.read_text().replace("hicache-ratio: 2.0", "hicache-ratio: 4.0")
    described.write_text(edited)
    inventory.write(tmp_path, ["h1", "h2"], "0.5.9")
    assert described.read_text() == edited
    inventory.forget(tmp_path)
    assert not described.exists()


def test_a_rehearsal_host_gets_no_engine_beforehand() -> None:
    with tarfile.open(fileobj=io.BytesIO(rehearse.archive(rehearse.REFERENCE))) as tar:
        names = tar.getnames()
    assert "usr/bin/nvidia-smi" in names
    assert "etc/opsctl-rehearsal/scenario.toml" in names
    assert not [n for n in names if "sglang/" in n or "/engine/" in n]


@pytest.mark.parametrize(
    ("name", "when"), [("reference", ""), ("silent-rank", "hicache-ratio = 4.0")]
)
def test_a_scenario_says_when_its_fault_plays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, when: str
) -> None:
    monkeypatch.setattr(rehearse, "play", lambda host, text: None)
    assert lab.scenario("h1", name) == when


def test_a_broken_scenario_file_is_not_sent(folder: Path) -> None:
    broken = folder / "x.toml"
    broken.write_text('name = "x"')
    with pytest.raises(OpsctlError, match="the key 'engine' is missing"):
        lab.scenario("h1", str(broken))
