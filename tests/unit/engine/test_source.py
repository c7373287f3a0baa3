"""Reading options from source: each shape in which releases declare them, and what is refused.

The packages here are made up; tests/unit/engine/real_parsers.txt holds the real ones.
"""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.engine.source import Package, UnknownType, Unreadable, entries, read

HEAD = "import argparse, dataclasses, json\n"


def package(files: dict[str, str]) -> Package:
    return Package(lambda path: files.get(path))


def options(arguments: str, **more: str) -> list[dict[str, Any]]:
    """`more`: modules of sglang by their last names, with __ for a dot."""
    files = {f"sglang/{name.replace('__', '/')}.py": text for name, text in more.items()}
    return read(package({"sglang/srt/server_args.py": HEAD + arguments, **files}))


def called(*arguments: str, above: str = "", fields: str = "", **more: str) -> dict[str, Any]:
    """The one option of a call parser.add_argument(…), as releases up to 0.5.13 have all."""
    body = f"{above}\nclass ServerArgs:\n    x: int = 7\n{fields}\n    @staticmethod\n"
    body += "    def add_cli_args(parser: argparse.ArgumentParser):\n"
    body += "".join(f"        parser.add_argument({call})\n" for call in arguments)
    (found,) = options(body, **more)
    return found


def field(declared: str, above: str = "", **more: str) -> dict[str, Any]:
    """The one option of a declared field, as releases from 0.5.14 on have most."""
    body = f"{above}\nclass ServerArgs:\n    {declared}\n    @staticmethod\n"
    body += (
        "    def add_cli_args(parser):\n        add_cli_args_from_dataclass(parser, ServerArgs)\n"
    )
    (found,) = options(body, **more)
    return found


CALLS = [
    ('"--a-b", type=int, default=ServerArgs.x', {"type": "int", "default": 7}),
    ('"--a-b"', {"type": "str"}),
    ('"--a-b", type=str, choices=["u", "v"]', {"type": "str", "choices": ["u", "v"]}),
    ('"--a-b", choices={"v", "u"}', {"type": "str", "choices": ["u", "v"]}),
    ('"--a-b", type=float, nargs="?", const=0.5', {"type": "float", "nargs": "?", "const": 0.5}),
    ('"--a-b", type=int, default=0', {"type": "int", "default": 0}),
    ('"--a-b", default=""', {"type": "str", "default": ""}),
    ('"--a-b", type=json.loads', {"type": "loads"}),
    ('"--a-b", default="{}"', {"type": "str", "default": "{}", "json": True}),
    ('"--a-b", help="A dictionary in JSON string format"', {"type": "str", "json": True}),
    ('"--a-b", default=-1', {"type": "str", "default": -1}),
    ('"--a-b", default=10 * 1000', {"type": "str", "default": 10000}),
    ('"--a-b", default=argparse.SUPPRESS', {"type": "str"}),
    ('"--a-b", type=int, default=ServerArgs.x, help=f"n {ServerArgs.x}"',
     {"type": "int", "default": 7}),
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), CALLS)
def test_a_call(call: str, said: dict[str, Any]) -> None:
    assert called(call) == {"names": ["--a-b"], "dest": "a_b", "action": "store", **said}


ACTIONS = [
    ('action="store_true"', {"action": "store_true", "type": "bool", "const": True}),
    ('action="store_true", default=False',
     {"action": "store_true", "type": "bool", "const": True}),
    ('action="store_true", default=None',
     {"action": "store_true", "type": "bool", "const": True, "default": None}),
    ("action=argparse.BooleanOptionalAction, default=False",
     {"action": "boolean_optional", "default": False}),
    ("action=DeprecatedAction", {"action": "DeprecatedAction", "deprecated": True}),
    ('action=DeprecatedAction, help="Deprecated now. Please use --new instead."',
     {"action": "DeprecatedAction", "deprecated": True, "new_flag": "--new"}),
    ("action=DeprecatedAction, help=\"NOTE: --a is deprecated. Please set `--b` to 'c' instead.\"",
     {"action": "DeprecatedAction", "deprecated": True, "new_flag": "--b=c"}),
    ('action=DeprecatedAction, error_message="--a is no longer supported. Use --b with one of"',
     {"action": "DeprecatedAction", "deprecated": True, "new_flag": "--b", "refused": True}),
    ('action=DeprecatedStoreConstAction, dest="m", const_value=1, new_flag="--m=1"',
     {"action": "DeprecatedStoreConstAction", "dest": "m", "type": "bool", "new_flag": "--m=1",
      "default": None, "deprecated": True}),
    ('action=DeprecatedStoreConstAction, nargs=None, choices=["amd"], new_flag="--m"',
     {"action": "DeprecatedStoreConstAction", "type": "str", "choices": ["amd"],
      "new_flag": "--m", "deprecated": True}),
    ('action=DeprecatedAliasStoreAction, type=int, dest="n", new_flag="--n"',
     {"action": "DeprecatedAliasStoreAction", "type": "int", "dest": "n", "new_flag": "--n",
      "deprecated": True}),
    ('action=LoRAPathAction, type=str, nargs="*"',
     {"action": "LoRAPathAction", "type": "str", "nargs": "*"}),
    ('action="store_true", help="Replaces the deprecated --old."',
     {"action": "store_true", "type": "bool", "const": True}),
    ('action="store_true", help="(Deprecated: use --new=auto) Fuse."',
     {"action": "store_true", "type": "bool", "const": True, "deprecated": True,
      "new_flag": "--new=auto"}),
    ('action="store_true", help="[Deprecated] Use SOME_VARIABLE=1 instead."',
     {"action": "store_true", "type": "bool", "const": True, "deprecated": True}),
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), ACTIONS)
def test_an_action(call: str, said: dict[str, Any]) -> None:
    assert called(f'"--a", {call}') == {"names": ["--a"], "dest": "a", **said}


REGISTRIES = [
    # (choices, what the module says before, other modules, what they are)
    ("CHOICES", 'CHOICES = ["u"]', {}, ["u"]),
    ("CHOICES + ['w']", 'CHOICES = ["u"]', {}, ["u", "w"]),
    ("CHOICES", 'CHOICES = ["u"]\nCHOICES.append("v")', {}, ["u", "v"]),
    ("CHOICES", 'CHOICES = ["u"]\nif is_hip():\n    CHOICES.append("v")', {}, ["u"]),
    ("CHOICES", "from sglang.srt.other import CHOICES", {"srt__other": "CHOICES = ('u',)"}, ["u"]),
    ("CHOICES", "from sglang.srt.all import CHOICES",
     {"srt__all__": "", "srt__all": "from sglang.srt.part import *",
      "srt__part": "CHOICES = ['u']"}, ["u"]),
    ("list(P.Map.keys())", "from sglang.srt.p import P",
     {"srt__p": "from elsewhere import D\nclass P:\n    Map = {'u': D, 'v': D.x()}"}, ["u", "v"]),
    ("[m.name.lower() for m in Mode]", "from sglang.srt.m import Mode",
     {"srt__m": "from enum import IntEnum\nclass Mode(IntEnum):\n    NONE = 0\n    ALL = 1"},
     ["none", "all"]),
    ("B.ALL", "class B:\n    F = 'full'\n    N = 'none'\n    ALL = (F, N)", {}, ["full", "none"]),
    ("names()", "def names():\n    from sglang.srt.n import N\n    return list(N)",
     {"srt__n": "N = ['u']"}, ["u"]),
    ("names()", "import sys\ndef names():\n    m = sys.modules.get('x')\n    if m is not None:\n"
     "        return m.y\n    return ['u']", {}, ["u"]),
    ("C if not envs.TOKEN.get() else []", "C = ['u']\nfrom sglang.srt.environ import envs", {
     "srt__environ": "class EnvBool:\n    pass\nclass Envs:\n    TOKEN = EnvBool(False)\n"
                     "envs = Envs()"}, None),
]  # fmt: skip


@pytest.mark.parametrize(("choices", "above", "more", "said"), REGISTRIES)
def test_choices_from_elsewhere(
    choices: str, above: str, more: dict[str, str], said: list[str] | None
) -> None:
    if said is None:
        with pytest.raises(Unreadable, match="no such expression"):
            called(f'"--a", choices={choices}', above=above, **more)
    else:
        assert called(f'"--a", choices={choices}', above=above, **more)["choices"] == said


def test_a_variable_of_the_environment_is_unset() -> None:
    environ = "class EnvBool:\n    pass\nclass Envs:\n    T = EnvBool(False)\nenvs = Envs()"
    above = "from sglang.srt.environ import envs\nC = ['u']\nif envs.T.get():\n    C.append('v')"
    assert called('"--a", choices=C', above=above, srt__environ=environ)["choices"] == ["u"]


# What the class of an action does when it is called, and whether the parser ends there.
ENDS = [
    ("raise ValueError(self.help)", True),
    ("parser.error(self.help)", True),
    ("print('deprecated')", False),
    ("setattr(namespace, self.dest, True)", False),
    ("if self.error_message is not None:\n            parser.error('x')", False),
]


@pytest.mark.parametrize(("does", "ends"), ENDS)
def test_an_action_is_judged_by_what_it_does(does: str, ends: bool) -> None:
    """Of one name, it ended the parser in some releases, and only warns in others; also where it
    is imported, and where what it does stands in a class that it derives from."""
    actions = (
        "import argparse\nclass Base(argparse.Action):\n"
        f"    def __call__(self, parser, namespace, values, option_string=None):\n        {does}\n"
        "class DeprecatedAction(Base):\n    pass\n"
    )
    above = "from sglang.srt.actions import DeprecatedAction"
    found = called('"--a", action=DeprecatedAction', above=above, srt__actions=actions)
    assert found.get("refused", False) == ends


FIELDS = [
    ('a_b: A[int, "help"] = 3', {"type": "int", "default": 3}),
    ('a_b: A[Optional[float], "help"] = None', {"type": "float"}),
    ('a_b: A[float | None, "help"] = None', {"type": "float"}),
    ('a_b: A[str, "help"]', {"type": "str", "required": True}),
    ('a_b: A[bool, "help"] = False', {"type": "bool", "const": True, "action": "store_true"}),
    ('a_b: A[Literal["u", "v"], "help"] = "u"',
     {"type": "str", "choices": ["u", "v"], "default": "u"}),
    ('a_b: A[Literal[None, "v"], Arg(choices=["none", "v"])] = None',
     {"type": "str", "choices": ["none", "v"]}),
    ('a_b: A[Optional[List[int]], "help"] = None', {"type": "int", "nargs": "+"}),
    ('a_b: A[List[str], Arg(nargs="*")] = dataclasses.field(default_factory=list)',
     {"type": "str", "nargs": "*", "default": []}),
    ('a_b: A[List[str], "x"] = dataclasses.field(default_factory=lambda: list(("u",)))',
     {"type": "str", "nargs": "+", "default": ["u"]}),
    ("a_b: A[Optional[dict], Arg(type_parser=json.loads)] = None", {"type": "loads"}),
    ('a_b: Annotated[Optional[float], Arg(fallback=0.8), NS("x")] = None',
     {"type": "float", "fallback": 0.8}),
    ('a_b: A[bool, Arg(action=argparse.BooleanOptionalAction)] = True',
     {"action": "boolean_optional", "default": True}),
    ('a_b: A[Optional[List[str]], Arg(action=LoRAPathAction, action_kwargs={"type": str, '
     '"nargs": "*"})] = None', {"action": "LoRAPathAction", "type": "str", "nargs": "*"}),
    ('a_b: A[int, "first"] = 3\n    a_b: A[int, "second"] = 4', {"type": "int", "default": 4}),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "said"), FIELDS)
def test_a_field(declared: str, said: dict[str, Any]) -> None:
    assert field(declared) == {"names": ["--a-b"], "dest": "a_b", "action": "store", **said}


def test_a_field_under_other_names() -> None:
    found = field('tp_size: A[int, Arg(cli_name="--tensor-parallel-size", aliases=["--tp"])] = 1')
    assert found["names"] == ["--tensor-parallel-size", "--tp"]
    assert found["dest"] == "tp_size"


def test_fields_in_namespaces_of_their_own() -> None:
    """As in 0.5.20 and later: the record is made of classes that stand in other modules."""
    found = options(
        "from sglang.srt.fields import Memory\nclass ServerArgs:\n    @staticmethod\n"
        "    def add_cli_args(parser):\n        add_cli_args_from_dataclass(parser, ServerArgs)\n"
        '        parser.add_argument("--late", default=_declared_default("ratio"))\n'
        "_INPUT_NAMESPACES = [Memory]\n"
        "ServerArgs = msgspec.defstruct('ServerArgs', [])\n",
        srt__fields="C = ['u']\nclass Memory:\n    ratio: A[float, 'help'] = 2.0\n"
        "    kind: A[str, Arg(choices=C)] = 'u'\n    hidden: A[int, Arg(no_cli=True)] = 1\n"
        "    runtime: A[int, Derived('doc')] = 1\n    plain: int = 3\n",
    )
    assert [(o["names"][0], o.get("default")) for o in found] == [
        ("--ratio", 2.0),
        ("--kind", "u"),
        ("--late", 2.0),
    ]


def test_what_another_function_adds_counts_too() -> None:
    found = options(
        "def more(p, n):\n    p.add_argument('--b', type=int)\n"
        "class ServerArgs:\n    @staticmethod\n    def add_cli_args(parser):\n"
        "        parser.add_argument('--a')\n        more(parser, 1)\n"
    )
    assert [o["names"] for o in found] == [["--a"], ["--b"]]


LOUD = [
    ('"--a", choices=unheard_of', "", "nothing in this module has this name"),
    ('"--a", choices=C', "from elsewhere import C", "not part of the package"),
    ('"--a", default=f(1)', "def f(n):\n    while n:\n        n -= 1\n    return n", "no such"),
    ('"--a", default=open("/etc/passwd")', "", "nothing in this module has this name"),
    ('"--a", default=__import__("os").getpid()', "", "nothing in this module has this name"),
    ('"--a", choices=C', 'C = ["u"]\nC += ["v"]', "only a run would tell"),
    ('"--a", choices=C', 'if X:\n    C = ["u"]\nelse:\n    C = ["v"]', "only a run would tell"),
    ('"--a", choices=C', "C = C + ['u']", "only a run would tell"),
    ('"--a", default=3 ** 3', "", "no such operator"),
]


@pytest.mark.parametrize(("call", "above", "said"), LOUD)
def test_what_is_not_understood_is_refused(call: str, above: str, said: str) -> None:
    with pytest.raises(Unreadable, match=said) as caught:
        called(call, above=above)
    assert "sglang.srt.server_args" in str(caught.value)


LOUD_BODIES = [
    "        for n in 'ab':\n            parser.add_argument(f'--{n}')\n",
    "        unknown(parser)\n",
    "        group = parser.add_argument_group('x')\n",
]


@pytest.mark.parametrize("body", LOUD_BODIES)
def test_no_option_is_passed_over(body: str) -> None:
    with pytest.raises(Unreadable):
        options(f"class ServerArgs:\n    @staticmethod\n    def add_cli_args(parser):\n{body}")


@pytest.mark.parametrize(
    "files", [{}, {"sglang/srt/server_args.py": "class ServerArgs:\n    x = 1"}]
)
def test_a_package_without_options(files: dict[str, str]) -> None:
    with pytest.raises(Unreadable):
        read(package(files))


def test_a_type_that_is_new_is_refused() -> None:
    with pytest.raises(UnknownType, match="--a is read by parse_new_thing"):
        entries([called('"--a", type=parse_new_thing')], {})


def test_one_name_for_one_flag_in_all_versions() -> None:
    option = {"names": ["--tensor-parallel-size", "--tp-size"], "dest": "tp_size", "type": "int",
              "action": "store", "default": 1}  # fmt: skip
    known = {"tp-size": "tp-size", "tensor-parallel-size": "tp-size"}
    wanted = {"kind": "int", "aliases": ["tensor-parallel-size"], "default": 1}
    assert entries([option], known) == {"tp-size": wanted}
    assert list(entries([option], {})) == ["tensor-parallel-size"]
