"""What becomes of settings that no part of a description holds: by the setting's name.

(kind of note, what to say): "changed" has something else in opsctl's unit ({ours}); "lost" has
nothing there; "dropped" does nothing here. A name with * stands for all that begin so; names of
their own are looked up first. OURS is what the template says for every service (a test compares).
"""

from __future__ import annotations

STOP_MARGIN = 75  # seconds that opsctl's unit adds to timing.drain

# Read elsewhere: they are in the description, or told there.
READ: dict[str, set[str]] = {
    "Unit": set(),
    "Service": {
        *("ExecStart", "Environment", "EnvironmentFile", "PassEnvironment", "UnsetEnvironment"),
        *("User",),
    },
    "Container": {
        *("Image", "Exec", "Entrypoint", "Environment", "EnvironmentFile", "Volume", "PublishPort"),
        *("AddDevice", "PodmanArgs", "WorkingDir"),
    },
}

OURS = {
    "Type": "exec",
    "KillMode": "mixed",
    "Restart": "on-failure",
    "RestartSec": "30s",
    "StartLimitBurst": "3",
    "OOMPolicy": "stop",
    "LimitMEMLOCK": "infinity",
    "LimitNOFILE": "1048576",
    "LimitCORE": "0",
    "MemorySwapMax": "0",
    "LogRateLimitIntervalSec": "0",
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "PrivateTmp": "yes",
    "ProtectSystem": "full",
    "ProtectHome": "read-only",
    "ProtectHostname": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelLogs": "yes",
    "LockPersonality": "yes",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallArchitectures": "native",
    "SystemCallErrorNumber": "EPERM",
    "UMask": "0077",
    "WantedBy": "multi-user.target",
}

_NOWHERE = "no key of a description says it, and a drop-in of the unit is reported as drift"
_BEFORE = (
    "lost",
    "opsctl's unit runs no commands of yours; put it into a unit of its own with "
    "Before=sglang-NAME.service and RequiredBy=sglang-NAME.service, or into a role",
)
_AFTER = (
    "lost",
    "opsctl's unit runs no commands of yours; put it into a unit of its own with "
    "After=sglang-NAME.service and PartOf=sglang-NAME.service, if it is needed at all",
)
_BOUND = (
    "lost",
    "the engine is no longer bound to CPUs or memory nodes; flags.numa-node binds each rank to a "
    f"node, where the engine's version has it; beyond that {_NOWHERE}",
)
_PRIORITY = (
    "lost",
    f"the engine runs with the usual priority; {_NOWHERE}: lower that of what disturbs it instead",
)
_SHARES = (
    "lost",
    f"the engine has no such limit or share any more; {_NOWHERE}. Memory is guarded by "
    "memory.min_available and a forecast instead",
)
_HARDENING = (
    "changed",
    "opsctl's unit has a hardening of its own, which leaves out what CUDA does not survive "
    "(docs/architecture.md)",
)
_OPEN = (
    "lost",
    "opsctl's unit has no such setting: /etc, /usr and homes are read-only to the engine, "
    "elsewhere the permissions of its user decide; give that user what it needs",
)
_WHEN = (
    "lost",
    "opsctl's unit starts whatever this says: a start that lacks something fails at a gate or at "
    "the look before it, and is told",
)
_ORDER = (
    "changed",
    "opsctl's unit waits for the network, the driver's services and the mounts of the models; for "
    "more, put Before=sglang-NAME.service into the unit that it shall wait for",
)
_BOUND_UNITS = (
    "lost",
    "opsctl's unit depends on no other; put the dependency into the other unit (PartOf=, Before= "
    "or Upholds=sglang-NAME.service)",
)
_OUTPUT = ("changed", "what the engine prints is in the journal: opsctl logs SERVICE")
_WORDS = ("dropped", "words for people; opsctl writes its own")
_ALARM = (
    "lost",
    f"systemd no longer calls another unit, or ends the host, when the engine fails; {_NOWHERE}: "
    "watch the unit's state (opsctl status tells it)",
)
_PROCESS = ("changed", "opsctl's unit says Type=exec: the engine is systemd's own child")
_LIMITS = ("changed", "opsctl's unit says StartLimitBurst=3 over three whole starts")
_FOLDERS = (
    "lost",
    "opsctl's unit makes no such folder: its own is /var/cache/opsctl/SERVICE; let a role make "
    "what the engine's flags name",
)

_OWN_FILES = ("lost", "the engine runs in the host's own file system: write the host's paths")

FATES: dict[str, tuple[str, str]] = {
    # commands
    "ExecStartPre": _BEFORE,
    "ExecCondition": _BEFORE,
    "ExecStartPost": _AFTER,
    "ExecStopPost": _AFTER,
    "ExecStop": ("changed", "opsctl's unit stops by SIGTERM to the engine, which drains"),
    "ExecReload": ("lost", "an engine reloads nothing: opsctl apply changes it by a new release"),
    # the process
    "Type": ("changed", "opsctl's unit says Type={ours}, and gates on the host judge the start"),
    "NotifyAccess": _PROCESS,
    "PIDFile": _PROCESS,
    "GuessMainPID": _PROCESS,
    "RemainAfterExit": _PROCESS,
    "BusName": _PROCESS,
    "ExitType": _PROCESS,
    "Group": ("changed", "opsctl's unit runs as the group that has the name of the user"),
    "SupplementaryGroups": (
        "lost",
        "make the service's user a member of these groups, if the engine needs them (a role, or "
        "usermod -aG GROUP USER)",
    ),
    "DynamicUser": ("changed", "opsctl's unit has a system user that stays: user in a description"),
    "PAMName": ("dropped", "a service needs no login"),
    "WorkingDirectory": (
        "changed",
        "a service starts in /var/cache/opsctl/SERVICE; relative paths of flags were written in "
        "full from this folder, relative paths in variables were not: check them",
    ),
    "RootDirectory": _OWN_FILES,
    "RootImage": _OWN_FILES,
    "UMask": ("changed", "opsctl's unit says UMask={ours}: only its user reads what it writes"),
    "LoadCredential*": (
        "lost",
        "give what it holds in secrets.env, or as a file that a flag names",
    ),
    "SetCredential*": ("lost", "give what it holds in secrets.env, or as a file that a flag names"),
    "ImportCredential": (
        "lost",
        "give what it holds in secrets.env, or as a file that a flag names",
    ),
    "StandardInput*": ("dropped", "the engine reads nothing from its standard input"),
    "StandardOutput": _OUTPUT,
    "StandardError": _OUTPUT,
    "Syslog*": _OUTPUT,
    "Log*": _OUTPUT,
    "TTY*": _OUTPUT,
    # start, stop, again
    "Restart": (
        "changed",
        "opsctl's unit says Restart={ours}: what ends by itself with success, or is stopped, "
        "stays down",
    ),
    "RestartSec": ("changed", "opsctl's unit says RestartSec={ours}: GPUs and port are free then"),
    "RestartSteps": ("changed", "opsctl's unit always waits the same time before a start"),
    "RestartMaxDelaySec": ("changed", "opsctl's unit always waits the same time before a start"),
    "RestartMode": ("changed", "opsctl's unit says Restart=on-failure and nothing more"),
    "RestartPreventExitStatus": ("lost", "every failure starts the engine again, three times"),
    "RestartForceExitStatus": ("lost", "an end with success starts nothing again"),
    "SuccessExitStatus": ("lost", "only 0 and the stop signals count as success"),
    "StartLimit*": _LIMITS,
    "TimeoutStartSec": (
        "changed",
        "with Type=exec it covers no model load: timing.cap is the longest start (from the "
        "forecast, if unset) and timing.stall the longest standstill",
    ),
    "TimeoutStopSec": ("changed", "has no end, or none that is read: timing.drain says how long"),
    "TimeoutSec": ("changed", "has no end, or none that is read: timing.drain says how long"),
    "TimeoutAbortSec": ("lost", "an engine is not aborted: SIGTERM, then SIGKILL"),
    "TimeoutStartFailureMode": ("lost", "a start that takes too long is ended by opsctl's guard"),
    "TimeoutStopFailureMode": ("lost", "a stop that takes too long ends with SIGKILL"),
    "RuntimeMaxSec": ("lost", "a service runs until it is stopped"),
    "RuntimeRandomizedExtraSec": ("lost", "a service runs until it is stopped"),
    "WatchdogSec": ("lost", "the engine tells systemd no signs of life; watch /health"),
    "WatchdogSignal": ("lost", "the engine tells systemd no signs of life; watch /health"),
    "KillMode": (
        "changed",
        "opsctl's unit says KillMode={ours}: the engine is told, drains, and then all are ended",
    ),
    "KillSignal": ("changed", "opsctl's unit begins with SIGTERM: the engine drains on it alone"),
    "RestartKillSignal": ("changed", "opsctl's unit begins with SIGTERM"),
    "FinalKillSignal": ("changed", "opsctl's unit ends with SIGKILL"),
    "SendSIGHUP": ("dropped", "the engine is no terminal's program"),
    "SendSIGKILL": ("changed", "opsctl's unit kills what is left after the drain"),
    "OOMPolicy": ("changed", "opsctl's unit says OOMPolicy={ours}"),
    "OOMScoreAdjust": (
        "lost",
        "the kernel chooses the engine by its size again, if memory runs out; memory.min_available "
        f"keeps it from running out; {_NOWHERE}",
    ),
    "ManagedOOM*": _SHARES,
    # priority, CPUs, shares
    "Nice": _PRIORITY,
    "CPUScheduling*": _PRIORITY,
    "IOScheduling*": _PRIORITY,
    "IgnoreSIGPIPE": _PROCESS,
    "CPUAffinity": _BOUND,
    "NUMAPolicy": _BOUND,
    "NUMAMask": _BOUND,
    "AllowedCPUs": _BOUND,
    "StartupAllowed*": _BOUND,
    "AllowedMemoryNodes": _BOUND,
    "MemorySwapMax": (
        "changed",
        "opsctl's unit says MemorySwapMax={ours}; memory.swap: allow lifts it",
    ),
    "Slice": _SHARES,
    "Delegate*": _SHARES,
    **dict.fromkeys(("MemoryMax", "MemoryHigh", "MemoryLow", "MemoryMin", "MemoryLimit"), _SHARES),
    **dict.fromkeys(("MemoryAccounting", "MemoryZSwapMax", "MemoryZSwapWriteback"), _SHARES),
    "MemoryPressure*": _SHARES,
    "StartupMemory*": _SHARES,
    "DefaultMemory*": _SHARES,
    "CPU*": _SHARES,
    "StartupCPU*": _SHARES,
    "IO*": _SHARES,
    "BlockIO*": _SHARES,
    "Tasks*": _SHARES,
    "IP*": (
        "lost",
        "opsctl's unit sorts no traffic: host: 127.0.0.1, an API key or a firewall do",
    ),
    "SocketBind*": ("lost", "opsctl's unit limits no port: the description has the only one"),
    "LimitMEMLOCK": ("changed", "opsctl's unit says LimitMEMLOCK={ours}: pinned host memory"),
    "LimitNOFILE": ("changed", "opsctl's unit says LimitNOFILE={ours}"),
    "LimitCORE": (
        "changed",
        "opsctl's unit says LimitCORE={ours}: a core of an engine fills the disk, and holds keys",
    ),
    "Limit*": ("lost", f"opsctl's unit leaves this limit as systemd has it; {_NOWHERE}"),
    "CoredumpFilter": ("dropped", "opsctl's unit says LimitCORE=0"),
    # what it may see and do
    "DeviceAllow": ("changed", "opsctl's unit closes no device: CUDA opens those that it needs"),
    "DevicePolicy": ("changed", "opsctl's unit closes no device: CUDA opens those that it needs"),
    "AmbientCapabilities": (
        "changed",
        "opsctl's unit takes every capability away: LimitMEMLOCK=infinity pins memory without",
    ),
    "CapabilityBoundingSet": ("changed", "opsctl's unit takes every capability away"),
    "Private*": _HARDENING,
    "Protect*": _HARDENING,
    "Restrict*": _HARDENING,
    "SystemCall*": _HARDENING,
    "MemoryDenyWriteExecute": _HARDENING,
    "LockPersonality": _HARDENING,
    "NoNewPrivileges": _HARDENING,
    "SecureBits": _HARDENING,
    "RemoveIPC": ("changed", "opsctl's unit leaves shared memory: it is of other services, too"),
    "KeyringMode": _HARDENING,
    "ProcSubset": _HARDENING,
    "Personality": _HARDENING,
    "SELinuxContext": _HARDENING,
    "AppArmorProfile": _HARDENING,
    "SmackProcessLabel": _HARDENING,
    "MountFlags": _HARDENING,
    "NetworkNamespacePath": ("lost", "the engine is in the host's own network"),
    "IPCNamespacePath": ("lost", "the engine shares the host's memory objects"),
    "JoinsNamespaceOf": ("lost", "the engine is in the host's own namespaces"),
    "ReadWrite*": _OPEN,
    "ReadOnly*": _OPEN,
    "Inaccessible*": _OPEN,
    "NoExecPaths": _OPEN,
    "ExecPaths": _OPEN,
    "TemporaryFileSystem": _OPEN,
    "BindPaths": ("lost", "write the flags with the paths that the host has"),
    "BindReadOnlyPaths": ("lost", "write the flags with the paths that the host has"),
    "MountImages": _OWN_FILES,
    "ExtensionImages": _OWN_FILES,
    "CacheDirectory*": _FOLDERS,
    "StateDirectory*": _FOLDERS,
    "LogsDirectory*": _FOLDERS,
    "RuntimeDirectory*": _FOLDERS,
    "ConfigurationDirectory*": _FOLDERS,
    # [Unit] and [Install]
    "Description": _WORDS,
    "Documentation": _WORDS,
    "SourcePath": _WORDS,
    "After": _ORDER,
    "Before": _BOUND_UNITS,
    "Wants": _ORDER,
    "Requires": _BOUND_UNITS,
    "Requisite": _BOUND_UNITS,
    "BindsTo": _BOUND_UNITS,
    "PartOf": _BOUND_UNITS,
    "Upholds": _BOUND_UNITS,
    "Conflicts": (
        "lost",
        "opsctl's unit stops no other: services of one host are judged together, and gpus keeps "
        "them apart; of a unit of other hands takes_over stops one",
    ),
    "PropagatesReloadTo": _BOUND_UNITS,
    "ReloadPropagatedFrom": _BOUND_UNITS,
    "PropagatesStopTo": _BOUND_UNITS,
    "StopPropagatedFrom": _BOUND_UNITS,
    "Sockets": ("lost", "the engine opens its port itself"),
    "RequiresMountsFor": ("changed", "opsctl's unit demands the folders of the models"),
    "WantsMountsFor": ("changed", "opsctl's unit demands the folders of the models"),
    "Condition*": _WHEN,
    "Assert*": _WHEN,
    "OnFailure*": _ALARM,
    "OnSuccess*": _ALARM,
    "FailureAction*": _ALARM,
    "SuccessAction*": _ALARM,
    "Job*": _ALARM,
    "RebootArgument": _ALARM,
    "DefaultDependencies": ("changed", "opsctl's unit has them: it starts late and stops early"),
    "IgnoreOnIsolate": ("dropped", "the usual holds for opsctl's unit"),
    "StopWhenUnneeded": ("lost", "a service runs until it is stopped"),
    "RefuseManual*": ("lost", "opsctl itself starts and stops the unit by hand"),
    "AllowIsolate": ("dropped", "the usual holds for opsctl's unit"),
    "CollectMode": ("dropped", "the usual holds for opsctl's unit"),
    "SurviveFinalKillSignal": ("dropped", "the usual holds for opsctl's unit"),
    "WantedBy": ("changed", "opsctl's unit says WantedBy={ours}"),
    "RequiredBy": _BOUND_UNITS,
    "UpheldBy": _BOUND_UNITS,
    "Alias": (
        "lost",
        "opsctl's unit has one name, sglang-SERVICE.service: change who uses another",
    ),
    "Also": ("lost", "enable those units yourself"),
    "DefaultInstance": ("dropped", "opsctl's unit is no template"),
}

FATES |= {
    **dict.fromkeys(("BindTo", "RequiresOverridable", "RequisiteOverridable"), _BOUND_UNITS),
    **dict.fromkeys(("PropagateReloadTo", "PropagateReloadFrom"), _BOUND_UNITS),
    **dict.fromkeys(("RootDirectoryStartOnly", "PermissionsStartOnly"), _PROCESS),
    **dict.fromkeys(("NonBlocking", "FileDescriptorStoreMax", "TimerSlackNSec"), _PROCESS),
    **dict.fromkeys(
        ("RootImageOptions", "RootHash", "RootHashSignature", "RootVerity"), _OWN_FILES
    ),
    **dict.fromkeys(("ExtensionDirectories", "MountAPIVFS"), _OWN_FILES),
    **dict.fromkeys(("StartupIOWeight", "StartupBlockIOWeight", "DisableControllers"), _SHARES),
    "BPFProgram": _SHARES,
    **dict.fromkeys(("UtmpIdentifier", "UtmpMode"), _OUTPUT),
    **dict.fromkeys(("USBFunctionDescriptors", "USBFunctionStrings"), _PROCESS),
    "ExecSearchPath": ("changed", "opsctl's unit names the program by its whole path"),
    "TimeoutCleanSec": ("dropped", "opsctl remove SERVICE takes away what a service leaves"),
}

UNKNOWN = (
    "lost",
    "is no setting that opsctl knows: systemd itself ignores what is misspelt "
    "(systemd.directives(7) names all); if the engine needs it, no key of a description says it",
)

# Keys of a podman .container file; "": of all others.
CONTAINER = {
    "": "a setting of the container, which there is no longer",
    "ContainerName": "there is no container any more; the service has a name of its own",
    "Network": "the engine listens on the host",
    "User": "the service has a user of its own",
    "ShmSize": "/dev/shm is the host's",
    "Secret": "give what it holds in secrets.env",
    "AutoUpdate": "engine.version is exact",
    "Pull": "no image is fetched",
}
