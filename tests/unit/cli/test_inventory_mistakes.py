"""An inventory whose YAML is wrong: the file and the line are told, values never."""

import pytest

from opsctl.errors import SpecError
from opsctl.inventory.mistakes import mistakes
from opsctl.inventory.reader import as_far

GOOD = """\
sglang_services:
  kimi:
    flags: {a: &x {b: 1}, c: *x, d: {<<: *x}}
    k: !vault |
      $A
"""
TWICE = "sglang_services:\n  kimi:\n    flags:\n      tp-size: 8\n      tp-size: 4\n"


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "hosts.yml").write_text("kimi: {hosts: {h1: {}}}\n")
        (tmp_path / "group_vars").mkdir(exist_ok=True)
        (tmp_path / "group_vars" / "kimi.yml").write_text(text)
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD, []),
        ("", []),
        (
            TWICE,
            [
                "file FILE:5, key sglang_services.kimi.flags.tp-size: this key stands twice, in "
                "line 4 as well"
            ],
        ),
        (
            "a: [{b: 1,\n  b: 2}]\n",
            ["file FILE:2, key a.0.b: this key stands twice, in line 1 as well"],
        ),
        (
            "a: {b: secret, b: secret}\n",
            ["file FILE:1, key a.b: this key stands twice, in line 1 as well"],
        ),
        (
            "a: [secret\nb: 1\n",
            ["file FILE:2: this is not YAML: expected ',' or ']', but got ':'"],
        ),
    ],
)
def test_where_it_is_wrong(written, text, said):
    folder = written(text)
    file = str(folder / "group_vars" / "kimi.yml")
    for where in (folder, folder / "hosts.yml"):
        assert [str(p).replace(file, "FILE") for p in mistakes(where)] == said


def test_ansible_refuses_the_same(written, monkeypatch):
    monkeypatch.setenv("ANSIBLE_DUPLICATE_YAML_DICT_KEY", "ignore")
    folder = written(TWICE)
    with pytest.raises(SpecError, match=r"kimi.yml:5, key .*tp-size: this key stands twice"):
        as_far(folder)
