"""What is said of settings that share a fate (fates.py): the kind of note, and the words."""

from __future__ import annotations

NOWHERE = "no key of a description says it, and a drop-in of the unit is reported as drift"
BEFORE = (
    "lost",
    "opsctl's unit runs no commands of yours; put it into a unit of its own with "
    "Before=sglang-NAME.service and RequiredBy=sglang-NAME.service, or into a role",
)
AFTER = (
    "lost",
    "opsctl's unit runs no commands of yours; put it into a unit of its own with "
    "After=sglang-NAME.service and PartOf=sglang-NAME.service, if it is needed at all",
)
BOUND = (
    "lost",
    "the engine is no longer bound to CPUs or memory nodes; flags.numa-node binds each rank to a "
    f"node, where the engine's version has it; beyond that {NOWHERE}",
)
PRIORITY = (
    "lost",
    f"the engine runs with the usual priority; {NOWHERE}: lower that of what disturbs it instead",
)
SHARES = (
    "lost",
    f"the engine has no such limit or share any more; {NOWHERE}. Memory is guarded by "
    "memory.min_available and a forecast instead",
)
HARDENING = (
    "changed",
    "opsctl's unit has a hardening of its own, which leaves out what CUDA does not survive "
    "(docs/architecture.md)",
)
OPEN = (
    "lost",
    "opsctl's unit has no such setting: /etc, /usr and homes are read-only to the engine, "
    "elsewhere the permissions of its user decide; give that user what it needs",
)
WHEN = (
    "lost",
    "opsctl's unit starts whatever this says: a start that lacks something fails at a gate or at "
    "the look before it, and is told",
)
ORDER = (
    "changed",
    "opsctl's unit waits for the network, the driver's services and the mounts of the models; for "
    "more, put Before=sglang-NAME.service into the unit that it shall wait for",
)
BOUND_UNITS = (
    "lost",
    "opsctl's unit depends on no other; put the dependency into the other unit (PartOf=, Before= "
    "or Upholds=sglang-NAME.service)",
)
OUTPUT = ("changed", "what the engine prints is in the journal: opsctl logs SERVICE")
WORDS = ("dropped", "words for people; opsctl writes its own")
ALARM = (
    "lost",
    f"systemd no longer calls another unit, or ends the host, when the engine fails; {NOWHERE}: "
    "watch the unit's state (opsctl status tells it)",
)
PROCESS = ("changed", "opsctl's unit says Type=exec: the engine is systemd's own child")
LIMITS = ("changed", "opsctl's unit says StartLimitBurst=3 over three whole starts")
FOLDERS = (
    "lost",
    "opsctl's unit makes no such folder: its own is /var/cache/opsctl/SERVICE; let a role make "
    "what the engine's flags name",
)

OWN_FILES = ("lost", "the engine runs in the host's own file system: write the host's paths")
