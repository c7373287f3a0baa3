"""Help, versions, imports, and how errors end a command."""

import subprocess
import sys

import pytest

import opsctl
from opsctl import errors, inventory
from opsctl.cli import fleet, main
from opsctl.cli.frame import Settings, ended, merged

VERBS = [
    "hosts", "render", "deploy", "restart", "stop", "start", "rollback", "status", "verify",
    "watch", "logs", "history", "remove", "unlock", "config", "lab",
]  # fmt: skip
CHANGING = ["deploy", "restart", "stop", "start", "rollback", "remove", "unlock"]
HEAVY = ("rich", "pydantic", "fabric", "paramiko", "yaml", "ansible", "httpx", "jinja2")


def test_help_lists_every_verb_whole(cli):
    text = cli("--help").stdout
    commands = text[text.index("Commands:") :]
    for verb in VERBS:
        assert f"\n  {verb} " in commands
    assert "..." not in commands, "no first sentence is cut off"
    assert cli("-h").stdout == text
    assert "130 interrupted" in text


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(cli, verb):
    done = cli(verb, "--help")
    assert done.exit_code == 0
    assert "Usage: opsctl " + verb in done.stdout


@pytest.mark.parametrize("verb", CHANGING)
def test_every_changing_verb_has_the_same_options(cli, verb):
    text = cli(verb, "--help").stdout
    for option in ("--dry-run", "--yes", "--limit", "--timeout", "--reason", "--detach"):
        assert option in text


def test_deploy_says_who_prepares_hosts(cli):
    assert "ansible-playbook deploy.yml" in " ".join(cli("deploy", "--help").stdout.split())


def test_the_version(cli):
    assert cli("--version").stdout == f"opsctl {opsctl.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "typers_own"),
    # Newer typers themselves read a verb's options with pydantic.
    [(["--help"], []), (["--version"], []), (["status", "--help"], ["pydantic"])],
)
def test_help_imports_nothing_heavy(arguments, typers_own):
    code = (
        "import sys\n"
        "from opsctl.cli.main import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        f"heavy = set({HEAVY!r}) & set(sys.modules) - set({typers_own!r})\n"
        "print(sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    "arguments", [["nope"], ["status", "--nope"], ["logs"], ["status", "-o", "xml"], ["stop"]]
)
def test_wrong_usage_ends_with_2(cli, arguments):
    done = cli(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Usage: opsctl" in done.stderr


@pytest.mark.parametrize(
    ("typed", "following"),
    [
        ("stop --yes", "opsctl stop --yes SERVICE"),
        ("--limit h1 remove", "opsctl --limit h1 remove SERVICE"),
        ("logs", "opsctl logs SERVICE"),
        ("unlock", "opsctl unlock SERVICE"),
        ("config explain", "opsctl config explain FLAG"),
        ("catalog diff 0.5.9", "opsctl catalog diff 0.5.9 B"),
        ("render", "opsctl render --out DIR"),
        ("logs kimi other", "opsctl logs -h"),
        ("doctor h1", "opsctl doctor --limit h1"),
        ("hosts -o json h1 h2", "opsctl hosts -o json --limit h1,h2"),
        ("logs kimi --lines x", "opsctl logs -h"),
        ("restart --bogus", "opsctl restart -h"),
        ("verify --limit", "opsctl verify -h"),
        ("import --host", "opsctl import -h"),
        ("rollback -o xml", "opsctl rollback -h"),
        ("config show --bogus", "opsctl config show -h"),
        ("lab up many", "opsctl lab up -h"),
        ("--bogus", "opsctl -h"),
        ("deployy", "opsctl -h"),
    ],
)
def test_wrong_usage_says_what_to_type_next(cli, typed, following):
    done = cli(*typed.split())
    assert done.exit_code == 2
    *_, error, last = done.stderr.splitlines()
    assert error.startswith("error: ") and "Value error" not in error
    assert last == f"next: {following}"


@pytest.mark.parametrize(
    ("typed", "option"),
    [
        (("forecast", "a.yml", "--fit", "hicache-ratio", "--fit", "context-length"), "--fit"),
        (("forecast", "a.yml", "--journal", "a", "--journal=b"), "--journal"),
        (("forecast", "a.yml", "--gpus", "8", "--gpu-total", "1", "--gpus", "4"), "--gpus"),
        (("plan", "--canary", "h1", "--canary", "h2"), "--canary"),
        (("config", "show", "kimi", "-o", "json", "--output", "yaml"), "--output"),
        (("-i", "one", "-i", "two", "hosts"), "--inventory"),
    ],
)
def test_a_second_value_is_not_dropped(cli, typed, option):
    done = cli(*typed)
    assert done.exit_code == 2
    assert f"error: {option} is given 2 times: it takes one value" in done.stderr
    assert "next: opsctl" in done.stderr


def test_switches_and_lists_may_be_given_twice(cli):
    twice = ("--explain", "--explain", "--set", "a=1", "--set", "b=2")
    assert cli("forecast", "-h", *twice, "--fit", "a", "--fit", "b").exit_code == 0
    assert "there is no file none.yml" in cli("forecast", "none.yml", *twice).stderr


def test_a_group_without_a_verb_shows_its_help(cli):
    done = cli("config")
    assert done.exit_code == 2
    assert "Commands:" in done.stdout + done.stderr and "next:" not in done.stderr


ALL = [kind for kind in vars(errors).values() if isinstance(kind, type)]
KINDS = [kind for kind in ALL if issubclass(kind, errors.OpsctlError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_ends_with_its_own_code(cli, monkeypatch, kind):
    def fail(*args, **options):
        if kind is errors.SpecError:
            raise kind([errors.Problem("what is wrong", host="h1", key="flags.x")])
        raise kind("what is wrong", host="h1", step="plan", hint="try this", log=["a line"])

    monkeypatch.setattr(fleet, "choose", fail)
    done = cli("status")
    assert done.exit_code == kind.exit_code
    assert "what is wrong" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_codes_are_those_that_are_documented():
    assert {kind.__name__: kind.exit_code for kind in KINDS} == {
        "OpsctlError": 1,
        "SpecError": 2,
        "NothingSelected": 2,
        "Refused": 2,
        "NotExamined": 2,
        "ChangesPending": 3,
        "StalePlan": 3,
        "Unreachable": 4,
        "RolledBack": 5,
        "GateFailed": 6,
        "LockHeld": 7,
        "DoesNotFit": 8,
        "Interrupted": 130,
    }


def test_a_fault_of_ours_is_one_line_without_a_traceback(cli, monkeypatch):
    def fail(*args, **options):
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr(fleet, "choose", fail)
    done = cli("status")
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "--debug" in done.stderr
    debug = cli("status", "--debug")
    assert debug.exit_code == 1
    assert "Traceback (most recent call last)" in debug.stderr
    assert "Traceback" in cli("--debug", "status").stderr


def test_debug_shows_where_an_error_came_from(cli, monkeypatch):
    def fail(*args, **options):
        raise errors.Unreachable("gone", host="h1")

    monkeypatch.setattr(fleet, "choose", fail)
    done = cli("status", "--debug")
    assert done.exit_code == 4
    assert "Traceback" in done.stderr
    assert done.stderr.rstrip().endswith("error: h1: gone")


def test_ctrl_c_ends_with_130(cli, monkeypatch):
    def fail(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(fleet, "choose", fail)
    assert cli("status").exit_code == 130


def test_a_reader_that_has_gone_is_no_error():
    code = (
        "import os, sys\n"
        "from opsctl.cli.frame import Settings, ended\n"
        "def run():\n"
        "    for _ in range(100000):\n"
        "        sys.stdout.write('x' * 100 + chr(10))\n"
        "sys.exit(ended(run, Settings()))\n"
    )
    done = subprocess.run(
        ["bash", "-c", f'{sys.executable} -c "$0" | head -1; exit ${{PIPESTATUS[0]}}', code],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_said_after_the_verb_wins():
    before = Settings(limit=["h1"], debug=True)
    assert merged(before, Settings(limit=["h2"])) == Settings(limit=["h2"], debug=True)
    assert merged(before, Settings()) == before


def test_hosts_of_a_limit():
    assert Settings(limit=[" h1, h2 ,"]).hosts == ("h1", "h2")
    with pytest.raises(errors.Refused, match="--limit is given 2 times") as caught:
        _ = Settings(limit=["gpu", "!h1"]).hosts
    assert caught.value.hint == "give it once: --limit 'gpu,!h1'"
    assert Settings().hosts == ()


def test_exits_pass_through():
    import typer

    def leave():
        raise typer.Exit(7)

    with pytest.raises(typer.Exit):
        ended(leave, Settings())


def test_no_colour_off_a_terminal(cli):
    assert "\x1b" not in cli("status", env={"NO_COLOR": "", "FORCE_COLOR": "1"}).stdout


def test_the_console_script_is_this():
    done = subprocess.run(
        [sys.executable, "-c", "from opsctl.cli.main import main; main()", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == f"opsctl {opsctl.__version__}\n"
    assert main.built().info.name == "opsctl"


def test_no_cache_is_passed_on(cli, monkeypatch):
    asked = []
    monkeypatch.setattr(
        inventory,
        "book",
        lambda path, cache=True: asked.append(cache) or inventory.book_of(path, cli.raw),
    )
    cli("status")
    cli("status", "--no-cache")
    assert asked == [True, False]
