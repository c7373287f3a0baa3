"""What becomes of settings that no part of a description holds: by the setting's name.

(kind of note, what to say): "changed" has something else in opsctl's unit ({ours}); "lost" has
nothing there; "dropped" does nothing here. A name with * stands for all that begin so; names of
their own are looked up first. OURS is what the template says for every service (a test compares).
"""

from __future__ import annotations

from opsctl.importing.unit import fatetexts as say

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

FATES: dict[str, tuple[str, str]] = {
    # commands
    "ExecStartPre": say.BEFORE,
    "ExecCondition": say.BEFORE,
    "ExecStartPost": say.AFTER,
    "ExecStopPost": say.AFTER,
    "ExecStop": ("changed", "opsctl's unit stops by SIGTERM to the engine, which drains"),
    "ExecReload": ("lost", "an engine reloads nothing: opsctl deploy brings a new release"),
    # the process
    "Type": ("changed", "opsctl's unit says Type={ours}, and gates on the host judge the start"),
    "NotifyAccess": say.PROCESS,
    "PIDFile": say.PROCESS,
    "GuessMainPID": say.PROCESS,
    "RemainAfterExit": say.PROCESS,
    "BusName": say.PROCESS,
    "ExitType": say.PROCESS,
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
    "RootDirectory": say.OWN_FILES,
    "RootImage": say.OWN_FILES,
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
    "StandardOutput": say.OUTPUT,
    "StandardError": say.OUTPUT,
    "Syslog*": say.OUTPUT,
    "Log*": say.OUTPUT,
    "TTY*": say.OUTPUT,
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
    "StartLimit*": say.LIMITS,
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
        f"keeps it from running out; {say.NOWHERE}",
    ),
    "ManagedOOM*": say.SHARES,
    # priority, CPUs, shares
    "Nice": say.PRIORITY,
    "CPUScheduling*": say.PRIORITY,
    "IOScheduling*": say.PRIORITY,
    "IgnoreSIGPIPE": say.PROCESS,
    "CPUAffinity": say.BOUND,
    "NUMAPolicy": say.BOUND,
    "NUMAMask": say.BOUND,
    "AllowedCPUs": say.BOUND,
    "StartupAllowed*": say.BOUND,
    "AllowedMemoryNodes": say.BOUND,
    "MemorySwapMax": (
        "changed",
        "opsctl's unit says MemorySwapMax={ours}; memory.swap: allow lifts it",
    ),
    "Slice": say.SHARES,
    "Delegate*": say.SHARES,
    **dict.fromkeys(
        ("MemoryMax", "MemoryHigh", "MemoryLow", "MemoryMin", "MemoryLimit"), say.SHARES
    ),
    **dict.fromkeys(("MemoryAccounting", "MemoryZSwapMax", "MemoryZSwapWriteback"), say.SHARES),
    "MemoryPressure*": say.SHARES,
    "StartupMemory*": say.SHARES,
    "DefaultMemory*": say.SHARES,
    "CPU*": say.SHARES,
    "StartupCPU*": say.SHARES,
    "IO*": say.SHARES,
    "BlockIO*": say.SHARES,
    "Tasks*": say.SHARES,
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
    "Limit*": ("lost", f"opsctl's unit leaves this limit as systemd has it; {say.NOWHERE}"),
    "CoredumpFilter": ("dropped", "opsctl's unit says LimitCORE=0"),
    # what it may see and do
    "DeviceAllow": ("changed", "opsctl's unit closes no device: CUDA opens those that it needs"),
    "DevicePolicy": ("changed", "opsctl's unit closes no device: CUDA opens those that it needs"),
    "AmbientCapabilities": (
        "changed",
        "opsctl's unit takes every capability away: LimitMEMLOCK=infinity pins memory without",
    ),
    "CapabilityBoundingSet": ("changed", "opsctl's unit takes every capability away"),
    "Private*": say.HARDENING,
    "Protect*": say.HARDENING,
    "Restrict*": say.HARDENING,
    "SystemCall*": say.HARDENING,
    "MemoryDenyWriteExecute": say.HARDENING,
    "LockPersonality": say.HARDENING,
    "NoNewPrivileges": say.HARDENING,
    "SecureBits": say.HARDENING,
    "RemoveIPC": ("changed", "opsctl's unit leaves shared memory: it is of other services, too"),
    "KeyringMode": say.HARDENING,
    "ProcSubset": say.HARDENING,
    "Personality": say.HARDENING,
    "SELinuxContext": say.HARDENING,
    "AppArmorProfile": say.HARDENING,
    "SmackProcessLabel": say.HARDENING,
    "MountFlags": say.HARDENING,
    "NetworkNamespacePath": ("lost", "the engine is in the host's own network"),
    "IPCNamespacePath": ("lost", "the engine shares the host's memory objects"),
    "JoinsNamespaceOf": ("lost", "the engine is in the host's own namespaces"),
    "ReadWrite*": say.OPEN,
    "ReadOnly*": say.OPEN,
    "Inaccessible*": say.OPEN,
    "NoExecPaths": say.OPEN,
    "ExecPaths": say.OPEN,
    "TemporaryFileSystem": say.OPEN,
    "BindPaths": ("lost", "write the flags with the paths that the host has"),
    "BindReadOnlyPaths": ("lost", "write the flags with the paths that the host has"),
    "MountImages": say.OWN_FILES,
    "ExtensionImages": say.OWN_FILES,
    "CacheDirectory*": say.FOLDERS,
    "StateDirectory*": say.FOLDERS,
    "LogsDirectory*": say.FOLDERS,
    "RuntimeDirectory*": say.FOLDERS,
    "ConfigurationDirectory*": say.FOLDERS,
    # [Unit] and [Install]
    "Description": say.WORDS,
    "Documentation": say.WORDS,
    "SourcePath": say.WORDS,
    "After": say.ORDER,
    "Before": say.BOUND_UNITS,
    "Wants": say.ORDER,
    "Requires": say.BOUND_UNITS,
    "Requisite": say.BOUND_UNITS,
    "BindsTo": say.BOUND_UNITS,
    "PartOf": say.BOUND_UNITS,
    "Upholds": say.BOUND_UNITS,
    "Conflicts": (
        "lost",
        "opsctl's unit stops no other: services of one host are judged together, and gpus keeps "
        "them apart; of a unit of other hands takes_over stops one",
    ),
    "PropagatesReloadTo": say.BOUND_UNITS,
    "ReloadPropagatedFrom": say.BOUND_UNITS,
    "PropagatesStopTo": say.BOUND_UNITS,
    "StopPropagatedFrom": say.BOUND_UNITS,
    "Sockets": ("lost", "the engine opens its port itself"),
    "RequiresMountsFor": ("changed", "opsctl's unit demands the folders of the models"),
    "WantsMountsFor": ("changed", "opsctl's unit demands the folders of the models"),
    "Condition*": say.WHEN,
    "Assert*": say.WHEN,
    "OnFailure*": say.ALARM,
    "OnSuccess*": say.ALARM,
    "FailureAction*": say.ALARM,
    "SuccessAction*": say.ALARM,
    "Job*": say.ALARM,
    "RebootArgument": say.ALARM,
    "DefaultDependencies": ("changed", "opsctl's unit has them: it starts late and stops early"),
    "IgnoreOnIsolate": ("dropped", "the usual holds for opsctl's unit"),
    "StopWhenUnneeded": ("lost", "a service runs until it is stopped"),
    "RefuseManual*": ("lost", "opsctl itself starts and stops the unit by hand"),
    "AllowIsolate": ("dropped", "the usual holds for opsctl's unit"),
    "CollectMode": ("dropped", "the usual holds for opsctl's unit"),
    "SurviveFinalKillSignal": ("dropped", "the usual holds for opsctl's unit"),
    "WantedBy": ("changed", "opsctl's unit says WantedBy={ours}"),
    "RequiredBy": say.BOUND_UNITS,
    "UpheldBy": say.BOUND_UNITS,
    "Alias": (
        "lost",
        "opsctl's unit has one name, sglang-SERVICE.service: change who uses another",
    ),
    "Also": ("lost", "enable those units yourself"),
    "DefaultInstance": ("dropped", "opsctl's unit is no template"),
}

FATES |= {
    **dict.fromkeys(("BindTo", "RequiresOverridable", "RequisiteOverridable"), say.BOUND_UNITS),
    **dict.fromkeys(("PropagateReloadTo", "PropagateReloadFrom"), say.BOUND_UNITS),
    **dict.fromkeys(("RootDirectoryStartOnly", "PermissionsStartOnly"), say.PROCESS),
    **dict.fromkeys(("NonBlocking", "FileDescriptorStoreMax", "TimerSlackNSec"), say.PROCESS),
    **dict.fromkeys(
        ("RootImageOptions", "RootHash", "RootHashSignature", "RootVerity"), say.OWN_FILES
    ),
    **dict.fromkeys(("ExtensionDirectories", "MountAPIVFS"), say.OWN_FILES),
    **dict.fromkeys(("StartupIOWeight", "StartupBlockIOWeight", "DisableControllers"), say.SHARES),
    "BPFProgram": say.SHARES,
    **dict.fromkeys(("UtmpIdentifier", "UtmpMode"), say.OUTPUT),
    **dict.fromkeys(("USBFunctionDescriptors", "USBFunctionStrings"), say.PROCESS),
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
