"""What is dangerous in units that people write for GPU servers, and what opsctl's unit does.

Each was seen in units in public, or tried on hosts (docs/architecture.md says on which grounds
opsctl's own unit stands).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from opsctl.importing.marks import theirs
from opsctl.importing.model import Risk
from opsctl.importing.unit.read import Unit
from opsctl.importing.unit.risktexts import TEXTS

_SECRET_IN_ARGV = re.compile(r"--(?:admin-)?api-key[= ]|hf_[A-Za-z0-9]{4}|HF_TOKEN=")
_LOGGED = ("file:", "append:", "truncate:")
_SHELL = re.compile(r"^[@\-:+!]*(?:\S*/)?(?:ba|z|da|k)?sh\s+-\w*c\b")


def _risk(name: str, setting: str) -> Risk:
    return Risk(name, setting, *TEXTS[name])


def risks(unit: Unit) -> list[Risk]:
    if not unit.all("ExecStart"):
        return []
    return [one for rule in _RULES for one in rule(unit)]


def _type(unit: Unit) -> Iterator[Risk]:
    kind = unit.last("Type", "simple")
    if kind in ("simple", "exec"):
        limit = unit.last("TimeoutStartSec")
        shown = f"Type={kind}" + (f", TimeoutStartSec={theirs(limit)}" if limit else "")
        yield _risk("type", shown)
    if kind == "notify":
        yield _risk("type-notify", "Type=notify")
    if kind == "forking":
        yield _risk("type-forking", "Type=forking")
    if kind == "oneshot":
        yield _risk("type-oneshot", "Type=oneshot")


def _restart(unit: Unit) -> Iterator[Risk]:
    restart = unit.last("Restart", "no")
    pause = unit.last("RestartSec")
    limits = [
        unit.last(key, section=section)
        for section in ("Unit", "Service")
        for key in ("StartLimitIntervalSec", "StartLimitInterval", "StartLimitBurst")
    ]
    if restart in ("always", "on-failure") and (not any(limits) or "0" in limits):
        shown = (
            f"Restart={restart}"
            + (f", RestartSec={theirs(pause)}" if pause else "")
            + ", no start limit"
        )
        yield _risk("restart-limit", shown)
    if restart == "always":
        yield _risk("restart-always", "Restart=always")
    if restart in ("always", "on-failure") and not pause:
        yield _risk("restart-pause", "no RestartSec=")
    if restart == "no":
        yield _risk("restart-none", "no Restart=")


def _stop(unit: Unit) -> Iterator[Risk]:
    mode = unit.last("KillMode", "control-group")
    if mode in ("process", "none"):
        yield _risk("kill-mode", f"KillMode={mode}")
    elif mode == "control-group":
        yield _risk("kill-all", "KillMode=control-group (or unset)")
    if not unit.last("TimeoutStopSec") and not unit.last("TimeoutSec"):
        yield _risk("stop-timeout", "no TimeoutStopSec=")
    if unit.last("KillSignal") in ("SIGKILL", "9", "KILL"):
        yield _risk("kill-signal", f"KillSignal={unit.last('KillSignal')}")


def _limits(unit: Unit) -> Iterator[Risk]:
    if unit.last("LimitMEMLOCK") not in ("infinity",):
        yield _risk("memlock", "no LimitMEMLOCK=infinity")
    if not unit.last("LimitNOFILE"):
        yield _risk("nofile", "no LimitNOFILE=")
    for key in ("MemoryMax", "MemoryHigh", "MemoryLimit"):
        if (value := unit.last(key)) not in ("", "infinity"):
            yield _risk("memory-limit", f"{key}={theirs(value)}")
    if (score := unit.last("OOMScoreAdjust")).startswith("-"):
        yield _risk("oom-score", f"OOMScoreAdjust={theirs(score)}")


def _confinement(unit: Unit) -> Iterator[Risk]:
    user = unit.last("User")
    if user in ("", "root", "0"):
        yield _risk("root", "User=root" if user else "no User=")
    if unit.last("PrivateDevices") in ("yes", "true", "1", "on"):
        yield _risk("devices", "PrivateDevices=yes")
    policy = unit.last("DevicePolicy")
    allowed = unit.all("DeviceAllow")
    if (policy in ("closed", "strict") or allowed) and not any("nvidia" in a for a in allowed):
        yield _risk(
            "devices-closed", f"DevicePolicy={theirs(policy)}" if policy else "DeviceAllow="
        )
    if unit.last("MemoryDenyWriteExecute") in ("yes", "true", "1", "on"):
        yield _risk("jit", "MemoryDenyWriteExecute=yes")
    if unit.last("PrivateTmp") in ("yes", "true", "1", "on"):
        yield _risk("tmp", "PrivateTmp=yes")
    if unit.last("RemoveIPC") in ("yes", "true", "1", "on"):
        yield _risk("ipc", "RemoveIPC=yes")


def _secrets(unit: Unit) -> Iterator[Risk]:
    if any(_SECRET_IN_ARGV.search(line) for line in unit.all("ExecStart")):
        yield _risk("secret-argv", "a key or token in ExecStart=")
    if any(re.search(r"(TOKEN|KEY|PASSWORD|SECRET)=\S", line) for line in unit.all("Environment")):
        yield _risk("secret-env", "a key or token in Environment=")


def _output(unit: Unit) -> Iterator[Risk]:
    for key in ("StandardOutput", "StandardError"):
        value = unit.last(key)
        if value.startswith(_LOGGED) or value == "null":
            yield _risk("log-file", f"{key}={theirs(value)}")
            return
    if any(re.search(r"(?<![0-9&])>>? *\S|\| *tee\b", line) for line in unit.all("ExecStart")):
        yield _risk("log-file", "output redirected in ExecStart=")


def _order(unit: Unit) -> Iterator[Risk]:
    after = " ".join(unit.all("After", "Unit")).split()
    wants = " ".join([*unit.all("Wants", "Unit"), *unit.all("Requires", "Unit")]).split()
    if "network.target" in after and "network-online.target" not in after:
        yield _risk("network", "After=network.target")
    if ("network-online.target" in wants) != ("network-online.target" in after):
        yield _risk("network-half", "only one of After= and Wants=network-online.target")
    if not any("nvidia" in one or "fabricmanager" in one for one in after):
        yield _risk("driver", "no After=nvidia-persistenced.service")
    if not unit.all("RequiresMountsFor", "Unit"):
        yield _risk("mounts", "no RequiresMountsFor=")


def _commands(unit: Unit) -> Iterator[Risk]:
    line = unit.last("ExecStart")
    before = unit.all("ExecStartPre")
    if any(re.search(r"\bsleep\b", one) for one in before):
        yield _risk("sleep", "ExecStartPre=… sleep")
    if any(re.search(r"\bp?kill(all)?\b|fuser -k", one) for one in before):
        yield _risk("kill-others", "ExecStartPre=… kill")
    if re.search(r"\b(screen|tmux|nohup|setsid)\b", line):
        yield _risk("detached", "nohup, screen or tmux in ExecStart=")
    if _SHELL.match(line) and not re.search(r"\bexec\b", line):
        yield _risk("shell", "a shell in ExecStart= that does not exec")
    if "docker run" in line or "podman run" in line:
        yield _risk("container", "docker run in ExecStart=")
    if re.search(r":latest\b", line):
        yield _risk("latest", "an image :latest")
    if re.search(r"--host[= ]+(0\.0\.0\.0|::)", line) and "--api-key" not in line:
        yield _risk("open", "--host 0.0.0.0 without --api-key")
    if unit.last("ConditionPathExists", section="Unit"):
        yield _risk("condition", "Condition…=")
    wanted = " ".join(unit.all("WantedBy", "Install")).split()
    if "default.target" in wanted and not unit.last("User"):
        yield _risk("user-unit", "WantedBy=default.target")
    if any("LD_PRELOAD=" in one for one in unit.all("Environment")):
        yield _risk("preload", "LD_PRELOAD=")
    if any(re.search(r"[\"'] *#", one) for one in unit.all("Environment")):
        yield _risk("comment", "# after a value in Environment=")
    if any(one.startswith("-") for one in unit.all("EnvironmentFile")):
        yield _risk("env-file", "EnvironmentFile=- (may be missing)")


_RULES: tuple[Callable[[Unit], Iterator[Risk]], ...] = (
    _type,
    _restart,
    _stop,
    _limits,
    _confinement,
    _secrets,
    _output,
    _order,
    _commands,
)
