"""What is dangerous in units that people write for GPU servers, and what opsctl's unit does.

Each was seen in units in public, or tried on hosts (docs/architecture.md says on which grounds
opsctl's own unit stands).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from opsctl.importing.model import Risk
from opsctl.importing.unit.read import Unit

_SECRET_IN_ARGV = re.compile(r"--(?:admin-)?api-key[= ]|hf_[A-Za-z0-9]{4}|HF_TOKEN=")
_LOGGED = ("file:", "append:", "truncate:")
_SHELL = re.compile(r"^[@\-:+!]*(?:\S*/)?(?:ba|z|da|k)?sh\s+-\w*c\b")


def risks(unit: Unit) -> list[Risk]:
    if unit.has("Container"):
        return []
    return [one for rule in _RULES for one in rule(unit)]


def _type(unit: Unit) -> Iterator[Risk]:
    kind = unit.last("Type", "simple")
    if kind in ("simple", "exec"):
        limit = unit.last("TimeoutStartSec")
        shown = f"Type={kind}" + (f", TimeoutStartSec={limit}" if limit else "")
        yield Risk("type", shown, "systemd calls it started as soon as the process exists: a model "
                   "loads for many minutes more, and TimeoutStartSec does not cover that",
                   "gates on the host wait for ranks, health and a real answer before a release is "
                   "confirmed")  # fmt: skip
    if kind == "notify":
        yield Risk("type", "Type=notify", "the engine tells systemd nothing, so the start times out",
                   "Type=exec, and gates on the host")  # fmt: skip
    if kind == "forking":
        yield Risk("type", "Type=forking", "systemd guesses the main process",
                   "Type=exec: the engine is systemd's own child")  # fmt: skip
    if kind == "oneshot":
        yield Risk("type", "Type=oneshot", "systemd waits for the engine to end, and does not start "
                   "it again", "Type=exec, Restart=on-failure")  # fmt: skip


def _restart(unit: Unit) -> Iterator[Risk]:
    restart = unit.last("Restart", "no")
    pause = unit.last("RestartSec")
    limits = [unit.last(key, section=section) for section in ("Unit", "Service") for key in
              ("StartLimitIntervalSec", "StartLimitInterval", "StartLimitBurst")]  # fmt: skip
    if restart in ("always", "on-failure") and (not any(limits) or "0" in limits):
        shown = f"Restart={restart}" + (f", RestartSec={pause}" if pause else "") + ", no start limit"
        yield Risk("restart-limit", shown, "a start that fails after minutes of loading never trips "
                   "systemd's own limit (5 in 10 s), so it fails for ever and nobody is told",
                   "three failed starts end it: StartLimitIntervalSec spans three whole starts")  # fmt: skip
    if restart == "always":
        yield Risk("restart-always", "Restart=always", "an engine that was ended on purpose from "
                   "outside of systemd comes back", "Restart=on-failure")  # fmt: skip
    if restart in ("always", "on-failure") and not pause:
        yield Risk("restart-pause", "no RestartSec=", "the next start comes after 100 ms, while the "
                   "GPUs and the port of the last one are still held; quick failures (a wrong flag) "
                   "use up the limit at once", "RestartSec=30s")  # fmt: skip
    if restart == "no":
        yield Risk("restart-none", "no Restart=", "after a crash the service stays down",
                   "Restart=on-failure, with a limit")  # fmt: skip


def _stop(unit: Unit) -> Iterator[Risk]:
    mode = unit.last("KillMode", "control-group")
    if mode in ("process", "none"):
        yield Risk("kill-mode", f"KillMode={mode}", "schedulers outlive the stop, and keep GPU memory "
                   "and the port", "KillMode=mixed: the main process drains, then all others are "
                   "killed")  # fmt: skip
    elif mode == "control-group":
        yield Risk("kill-mode", "KillMode=control-group (or unset)", "every process of the engine "
                   "gets SIGTERM at once: streams in flight are cut",
                   "KillMode=mixed: only the main process is told, and drains")  # fmt: skip
    if not unit.last("TimeoutStopSec") and not unit.last("TimeoutSec"):
        yield Risk("stop-timeout", "no TimeoutStopSec=", "after 90 s the engine is killed, even in "
                   "the middle of an answer", "TimeoutStopSec is timing.drain and 75 s")  # fmt: skip
    if unit.last("KillSignal") in ("SIGKILL", "9", "KILL"):
        yield Risk("kill-signal", f"KillSignal={unit.last('KillSignal')}", "nothing is drained, and "
                   "shared memory stays behind", "SIGTERM first")  # fmt: skip


def _limits(unit: Unit) -> Iterator[Risk]:
    if unit.last("LimitMEMLOCK") not in ("infinity",):
        yield Risk("memlock", "no LimitMEMLOCK=infinity", "pinned memory (the host tier, RDMA) may "
                   "be refused after the model has loaded", "LimitMEMLOCK=infinity")  # fmt: skip
    if not unit.last("LimitNOFILE"):
        yield Risk("nofile", "no LimitNOFILE=", "a process may have 1024 files and sockets open at "
                   "first: many requests at once end in errors", "LimitNOFILE=1048576")  # fmt: skip
    for key in ("MemoryMax", "MemoryHigh", "MemoryLimit"):
        if value := unit.last(key):
            yield Risk("memory-limit", f"{key}={value}", "counts the page cache of the weights and "
                       "the host tier: the kernel kills the engine although the host has memory left",
                       "no such limit; a forecast before the start, and a gate on MemAvailable")  # fmt: skip
    if (score := unit.last("OOMScoreAdjust")).startswith("-"):
        yield Risk("oom-score", f"OOMScoreAdjust={score}", "the kernel then kills something else, "
                   "sshd perhaps, while the engine is what takes the memory",
                   "OOMPolicy=stop, and a least MemAvailable that is demanded")  # fmt: skip


def _confinement(unit: Unit) -> Iterator[Risk]:
    user = unit.last("User")
    if user in ("", "root", "0"):
        yield Risk("root", "User=root" if user else "no User=", "code of a model "
                   "(trust-remote-code) and every hole in the server run as root",
                   "a system user of its own, hardened")  # fmt: skip
    if unit.last("PrivateDevices") in ("yes", "true", "1", "on"):
        yield Risk("devices", "PrivateDevices=yes", "hides /dev/nvidia*: CUDA finds no GPU",
                   "devices stay open")  # fmt: skip
    policy = unit.last("DevicePolicy")
    allowed = unit.all("DeviceAllow")
    if (policy in ("closed", "strict") or allowed) and not any("nvidia" in a for a in allowed):
        yield Risk("devices", f"DevicePolicy={policy}" if policy else "DeviceAllow=",
                   "closes /dev/nvidia*: CUDA finds no GPU", "devices stay open")  # fmt: skip
    if unit.last("MemoryDenyWriteExecute") in ("yes", "true", "1", "on"):
        yield Risk("jit", "MemoryDenyWriteExecute=yes", "kernels that are compiled at the start do "
                   "not run", "it is not set")  # fmt: skip
    if unit.last("PrivateTmp") in ("yes", "true", "1", "on"):
        yield Risk("tmp", "PrivateTmp=yes", "caches of kernels under /tmp are gone at each start, "
                   "and are compiled anew", "PrivateTmp=yes too, with the caches in "
                   "/var/cache/opsctl/SERVICE")  # fmt: skip
    if unit.last("RemoveIPC") in ("yes", "true", "1", "on"):
        yield Risk("ipc", "RemoveIPC=yes", "takes the shared memory of the user's other services "
                   "when this one stops", "it is not set")  # fmt: skip


def _secrets(unit: Unit) -> Iterator[Risk]:
    if any(_SECRET_IN_ARGV.search(line) for line in unit.all("ExecStart")):
        yield Risk("secret-argv", "a key or token in ExecStart=", "every user of the host reads it "
                   "with ps, and the engine prints it into the journal",
                   "0600 files, LoadCredential=, and a masked journal")  # fmt: skip
    if any(re.search(r"(TOKEN|KEY|PASSWORD|SECRET)=\S", line) for line in unit.all("Environment")):
        yield Risk("secret-env", "a key or token in Environment=", "every user of the host reads it "
                   "with systemctl show", "0600 files, LoadCredential=")  # fmt: skip


def _output(unit: Unit) -> Iterator[Risk]:
    for key in ("StandardOutput", "StandardError"):
        value = unit.last(key)
        if value.startswith(_LOGGED) or value == "null":
            yield Risk("log-file", f"{key}={value}", "what the engine says is not in the journal: "
                       "nothing rotates it, and nobody reads of a start that fails",
                       "the journal, which every gate reads")  # fmt: skip
            return
    if any(re.search(r"(?<![0-9&])>>? *\S|\| *tee\b", line) for line in unit.all("ExecStart")):
        yield Risk("log-file", "output redirected in ExecStart=", "what the engine says is not in the "
                   "journal: nothing rotates it, and nobody reads of a start that fails",
                   "the journal, which every gate reads")  # fmt: skip


def _order(unit: Unit) -> Iterator[Risk]:
    after = " ".join(unit.all("After", "Unit")).split()
    wants = " ".join([*unit.all("Wants", "Unit"), *unit.all("Requires", "Unit")]).split()
    if "network.target" in after and "network-online.target" not in after:
        yield Risk("network", "After=network.target", "says that networking has begun, not that "
                   "there is an address: a start at boot may find none",
                   "After= and Wants=network-online.target")  # fmt: skip
    if ("network-online.target" in wants) != ("network-online.target" in after):
        yield Risk("network", "only one of After= and Wants=network-online.target", "wants without "
                   "after does not wait, after without wants waits for nothing",
                   "both")  # fmt: skip
    if not any("nvidia" in one or "fabricmanager" in one for one in after):
        yield Risk("driver", "no After=nvidia-persistenced.service", "at boot the engine may start "
                   "before the driver's own services are ready",
                   "After=nvidia-persistenced.service nvidia-fabricmanager.service")  # fmt: skip
    if not unit.all("RequiresMountsFor", "Unit"):
        yield Risk("mounts", "no RequiresMountsFor=", "if the disk with the model is not mounted, it "
                   "starts on an empty folder, and may fetch the model onto the root disk",
                   "RequiresMountsFor= the model")  # fmt: skip


def _commands(unit: Unit) -> Iterator[Risk]:
    line = unit.last("ExecStart")
    before = unit.all("ExecStartPre")
    if any(re.search(r"\bsleep\b", one) for one in before):
        yield Risk("sleep", "ExecStartPre=… sleep", "waits for a time instead of a thing: too short "
                   "after a slow boot, too long else", "order after what is needed, and gates")  # fmt: skip
    if any(re.search(r"\bp?kill(all)?\b|fuser -k", one) for one in before):
        yield Risk("kill-others", "ExecStartPre=… kill", "ends every process of that name, those of "
                   "other services too", "KillMode=mixed leaves nothing behind; GPU memory of others "
                   "is a reason to stop and tell")  # fmt: skip
    if re.search(r"\b(screen|tmux|nohup|setsid)\b", line):
        yield Risk("detached", "nohup, screen or tmux in ExecStart=", "systemd watches the wrapper, "
                   "not the engine: a crash is not seen, a stop does not reach it",
                   "systemd starts the engine itself")  # fmt: skip
    if _SHELL.match(line) and not re.search(r"\bexec\b", line):
        yield Risk("shell", "a shell in ExecStart= that does not exec", "the shell gets the stop "
                   "signal, and the engine is not drained",
                   "systemd starts the engine itself")  # fmt: skip
    if "docker run" in line or "podman run" in line:
        yield Risk("container", "docker run in ExecStart=", "systemd watches the client: the engine "
                   "is another tree of processes, which outlives it", "no container: systemd starts "
                   "the engine itself")  # fmt: skip
    if re.search(r":latest\b", line):
        yield Risk("latest", "an image :latest", "another engine after the next pull, without a "
                   "change of the unit", "engine.version is exact")  # fmt: skip
    if re.search(r"--host[= ]+(0\.0\.0\.0|::)", line) and "--api-key" not in line:
        yield Risk("open", "--host 0.0.0.0 without --api-key", "whoever reaches the host may use the "
                   "engine, and its administration", "127.0.0.1 unless host says otherwise, and "
                   "secrets.api-key")  # fmt: skip
    if any(one.startswith("-") for one in unit.all("EnvironmentFile")):
        yield Risk("env-file", "EnvironmentFile=- (may be missing)", "without the file the engine "
                   "starts with empty values", "all values stand in the unit")  # fmt: skip


_RULES: tuple[Callable[[Unit], Iterator[Risk]], ...] = (
    _type, _restart, _stop, _limits, _confinement, _secrets, _output, _order, _commands,
)  # fmt: skip
