"""The rendered unit under a real systemd: every value arrives exactly, and the unit is sound.

The engine's interpreter is a script that writes down its argv and environment. Many values go into
one unit, so that hundreds are tried in a few seconds.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsctl.release import quoting, render
from opsctl.release.unit import unit_text
from opsctl.spec.models import Service

pytestmark = pytest.mark.lab

NAMED: list[str] = json.loads(
    (Path(__file__).parents[1] / "unit" / "release" / "hostile.json").read_text()
)
DUMPER = """#!/usr/bin/python3
import json, os, sys
raw = lambda text: os.fsencode(text).decode("utf-8")
env = {raw(k): raw(v) for k, v in os.environ.items()}
out = {"argv": [raw(a) for a in sys.argv[1:]], "env": env}
with open(os.environ["HOME"] + "/dump.new", "w") as file:
    json.dump(out, file)
os.rename(os.environ["HOME"] + "/dump.new", os.environ["HOME"] + "/dump.json")
"""
# Writes the unit from stdin, runs it, answers what arrived and what systemd took from the file.
RUN = """
set -e
unit=%(unit)s dump=/var/cache/opsctl/%(name)s/dump.json
cat >/etc/systemd/system/$unit
rm -f $dump
systemctl daemon-reload
systemctl reset-failed $unit 2>/dev/null || true
systemctl start $unit || { journalctl -q -u $unit -n 20 >&2; exit 1; }
i=0; while [ ! -e $dump ]; do sleep 0.05; i=$((i+1)); [ $i -lt 200 ] || exit 9; done
cat $dump; echo
s=org.freedesktop.systemd1
for p in RequiresMountsFor Description; do
    busctl --json=short get-property $s %(object)s $s.Unit $p
done
journalctl -q -b -o cat -p warning _PID=1 | grep -F $unit: >&2 || true
"""


def service(**changes: Any) -> Service:
    base: dict[str, Any] = {
        "model": {"path": "/srv/models/tiny"},
        "engine": {"version": "0.5.9", "root": "/opt/dumper"},
    }
    return Service(**{**base, **changes})


@pytest.fixture(scope="module")
def host(lab_host: Any) -> Any:
    lab_host.put("/opt/dumper/bin/python", DUMPER.encode(), "755")
    lab_host.sh("useradd --system --no-create-home sglang")
    return lab_host


def run(host: Any, unit: str, name: str) -> dict[str, Any]:
    unit_name = f"sglang-{name}.service"
    place = "/org/freedesktop/systemd1/unit/" + re.sub(
        r"[^A-Za-z0-9]", lambda m: f"_{ord(m[0]):02x}", unit_name
    )
    command = RUN % {"unit": unit_name, "name": name, "object": place}
    done = host.sh(command, input=unit)
    dumped, mounts, description = done.stdout.strip().split("\n")
    return {
        **json.loads(dumped),
        "mounts": json.loads(mounts)["data"],
        "description": json.loads(description)["data"],
        "complaints": done.stderr,
    }


def seen(host: Any, arguments: list[str], env: dict[str, str], name: str = "words") -> None:
    """All of them in one unit, and each arrives exactly."""
    unit = unit_text(name, service(env=env), arguments, [], {}, "0" * 64, 5400.0)
    found = run(host, unit, name)
    assert found["argv"] == ["-m", "sglang.launch_server", *arguments]
    assert {k: found["env"].get(k) for k in env} == env
    assert found["complaints"] == "", "systemd found fault with the unit"


def test_named_values_arrive_exactly_in_argv_and_environment(host: Any) -> None:
    every = [chr(code) for code in [*range(1, 32), 127]]
    seen(host, NAMED + every, {f"V{i}": v for i, v in enumerate(NAMED + every)})


HARD = st.sampled_from(list("\"'\\$%;#-@+!:|&()<>*?~`{}[]=,/ \t\n\r\v\f\x01\x1b\x7f\x85 "))
TEXT = st.text(st.one_of(HARD, st.characters(codec="utf-8", exclude_characters="\0")), max_size=24)


@settings(
    max_examples=6,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(TEXT, min_size=120, max_size=200))
def test_generated_values_arrive_exactly(host: Any, values: list[str]) -> None:
    seen(host, values, {f"V{i}": v for i, v in enumerate(values)}, "generated")


def test_the_longest_argument_arrives_and_a_longer_one_is_refused(host: Any) -> None:
    longest = "é" * ((quoting.ARG_MAX_BYTES - 1) // 2)
    seen(host, [longest, "end"], {}, "long")
    with pytest.raises(quoting.Unquotable):
        quoting.argument(longest + "xx")


PATHS = [
    "/srv/models/Kimi-K2.5",
    "/srv/a b/c",
    '/srv/it\'s "x"',
    "/srv/100%/%n/%h",
    "/srv/$HOME/${x}",
    "/srv/back\\slash\\",
    "/srv/;#semi; colon",
    "/srv/千问/k\u0456mi\u202e\u2028\u00a0",
    "/srv/-dash/ trailing ",
]


def test_every_field_of_a_service_arrives_exactly(host: Any) -> None:
    """Through render() itself: paths, names, addresses, flags, variables."""
    for i, path in enumerate(PATHS):
        hostile = NAMED[i * 3 + 10]
        flags = {
            "speculative-draft-model-path": path + "x",
            "tokenizer-path": hostile or "x",
            "weight-version": path,
            "json-model-override-args": json.dumps({"a": [path, hostile]}),
        }
        one = service(
            model={"path": path, "served_name": path},
            host="::1",
            flags=flags,
            env={"HOSTILE": path},
            gpus=[0, 3],
        )
        release = render("fields", one, zipapp=b"")
        found = run(host, release.unit, "fields")
        got = dict(a.split("=", 1) for a in found["argv"][2:] if "=" in a)
        assert got["--model-path"] == got["--served-model-name"] == path
        assert got["--weight-version"] == path and got["--tokenizer-path"] == (hostile or "x")
        assert json.loads(got["--json-model-override-args"]) == {"a": [path, hostile]}
        assert got["--speculative-draft-model-path"] == path + "x" and got["--host"] == "::1"
        assert {path, path + "x"} <= set(found["mounts"])
        assert found["env"]["HOSTILE"] == path
        assert found["env"]["CUDA_VISIBLE_DEVICES"] == "0,3"
        assert found["description"] == "SGLang 0.5.9: fields"
        assert found["complaints"] == ""


# Writes each file and each unit of the table, starts all at once, answers what arrived in each.
READS = r"""
import json, os, subprocess, sys
given, base = json.load(sys.stdin), "/opt/reads"
put = lambda text: text.encode("utf-8", "surrogateescape")
os.makedirs(base + "/out", exist_ok=True)
with open(base + "/p", "w") as file:
    file.write("#!/bin/sh\nprintf '%s\\0' \"$@\" end-of-words\ncat /proc/$$/environ\n")
os.chmod(base + "/p", 0o755)
head = "[Service]\nType=oneshot\nStandardOutput=truncate:%s/out/%%N\n" % base
units = {"reads-base": f"ExecStart={base}/p"}
for n, text in enumerate(given["files"]):
    with open(f"{base}/{n}", "wb") as file:
        file.write(put(text))
    units[f"reads-f{n}"] = f"EnvironmentFile={base}/{n}\nExecStart={base}/p $E"
for n, text in enumerate(given["units"]):
    units[f"reads-u{n}"] = text.replace("/p", base + "/p")
for name, text in units.items():
    with open(f"/run/systemd/system/{name}.service", "wb") as file:
        file.write(put(head + text + "\n"))
subprocess.run(["systemctl", "daemon-reload"], check=True)
services = [name + ".service" for name in units]
subprocess.run(["systemctl", "start", *services], stderr=subprocess.DEVNULL)
def arrived(name):
    try:
        with open(f"{base}/out/{name}", "rb") as file:
            parts = [part.decode("utf-8", "surrogateescape") for part in file.read().split(b"\0")]
    except FileNotFoundError:
        return None, {}
    at = parts.index("end-of-words")
    return parts[:at], dict(part.split("=", 1) for part in parts[at + 1 : -1])
known = arrived("reads-base")[1]
found = {name: arrived(name) for name in units}
print(json.dumps({n: (a, {k: v for k, v in e.items() if k not in known})
                  for n, (a, e) in found.items()}))
"""  # fmt: skip


def test_systemd_reads_files_and_words_as_the_table_of_the_import_says(host: Any) -> None:
    table = json.loads(
        (Path(__file__).parents[1] / "unit" / "importing" / "systemd_252.json").read_text()
    )
    version = int(host.sh("systemctl --version").stdout.split()[1])
    if version != 252:
        pytest.skip(f"NOT PROVEN HERE: the table is of systemd 252, this host has {version}")
    files = [text for text, _, _ in table["files"]]
    units = [table["set"] + text for text, _, _ in table["units"]]
    host.put("/opt/reads/probe.py", READS.encode())
    found = json.loads(
        host.sh("python3 /opt/reads/probe.py", input=json.dumps({"files": files, "units": units}))
        .stdout
    )  # fmt: skip
    for n, (text, env, words) in enumerate(table["files"]):
        arrived = found[f"reads-f{n}"]
        assert arrived == ([None, {}] if env is None else [words, env]), text
    before = {"A": "1", "Q": "a 'b c' d", "W": "", "B": '{"a":1}'}
    for n, (text, argv, env) in enumerate(table["units"]):
        arrived, there = found[f"reads-u{n}"]
        there = {
            k: v.replace(f"reads-u{n}", "NAME") for k, v in there.items() if before.get(k) != v
        }
        named = arrived and [word.replace(f"reads-u{n}", "NAME") for word in arrived]
        assert (named, there) == (argv, env if argv is not None else {}), text
