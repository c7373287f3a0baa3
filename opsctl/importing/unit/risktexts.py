"""What each risk may do, and what opsctl's unit does in its place: by the risk's name."""

from __future__ import annotations

TEXTS: dict[str, tuple[str, str]] = {
    "type": (
        "systemd calls it started as soon as the process exists: a model loads for many "
        "minutes more, and TimeoutStartSec does not cover that",
        "gates on the host wait for ranks, health and a real answer before a release is confirmed",
    ),
    "type-notify": (
        "the engine tells systemd nothing, so the start times out",
        "Type=exec, and gates on the host",
    ),
    "type-forking": (
        "systemd guesses the main process",
        "Type=exec: the engine is systemd's own child",
    ),
    "type-oneshot": (
        "systemd waits for the engine to end, and does not start it again",
        "Type=exec, Restart=on-failure",
    ),
    "restart-limit": (
        "a start that fails after minutes of loading never trips systemd's own limit (5 in 10 "
        "s), so it fails for ever and nobody is told",
        "three failed starts end it: StartLimitIntervalSec spans three whole starts",
    ),
    "restart-always": (
        "an engine that was ended on purpose from outside of systemd comes back",
        "Restart=on-failure",
    ),
    "restart-pause": (
        "the next start comes after 100 ms, while the GPUs and the port of the last one are "
        "still held; quick failures (a wrong flag) use up the limit at once",
        "RestartSec=30s",
    ),
    "restart-none": (
        "after a crash the service stays down",
        "Restart=on-failure, with a limit",
    ),
    "kill-mode": (
        "schedulers outlive the stop, and keep GPU memory and the port",
        "KillMode=mixed: the main process drains, then all others are killed",
    ),
    "kill-all": (
        "every process of the engine gets SIGTERM at once: streams in flight are cut",
        "KillMode=mixed: only the main process is told, and drains",
    ),
    "stop-timeout": (
        "after 90 s the engine is killed, even in the middle of an answer",
        "TimeoutStopSec is timing.drain and 75 s",
    ),
    "kill-signal": (
        "nothing is drained, and shared memory stays behind",
        "SIGTERM first",
    ),
    "memlock": (
        "pinned memory (the host tier, RDMA) may be refused after the model has loaded",
        "LimitMEMLOCK=infinity",
    ),
    "nofile": (
        "a process may have 1024 files and sockets open at first: many requests at once end "
        "in errors",
        "LimitNOFILE=1048576",
    ),
    "memory-limit": (
        "counts the page cache of the weights and the host tier: the kernel kills the engine "
        "although the host has memory left",
        "no such limit; a forecast before the start, and a gate on MemAvailable",
    ),
    "oom-score": (
        "the kernel then kills something else, sshd perhaps, while the engine is what takes "
        "the memory",
        "OOMPolicy=stop, and a least MemAvailable that is demanded",
    ),
    "root": (
        "code of a model (trust-remote-code) and every hole in the server run as root",
        "a system user of its own, hardened",
    ),
    "ipc-user": (
        "logind takes an ordinary user's shared memory when its last session ends (RemoveIPC), and "
        "the engine fails; loginctl enable-linger USER ends that at once, without a restart",
        "a system user of its own, which logind spares; a `user` that the description keeps is "
        "warned of in every plan",
    ),
    "devices": (
        "hides /dev/nvidia*: CUDA finds no GPU",
        "devices stay open",
    ),
    "devices-closed": (
        "closes /dev/nvidia*: CUDA finds no GPU",
        "devices stay open",
    ),
    "jit": (
        "kernels that are compiled at the start do not run",
        "it is not set",
    ),
    "tmp": (
        "caches of kernels under /tmp are gone at each start, and are compiled anew",
        "PrivateTmp=yes too, with the caches in /var/cache/opsctl/SERVICE",
    ),
    "ipc": (
        "takes the shared memory of the user's other services when this one stops",
        "it is not set",
    ),
    "secret-argv": (
        "every user of the host reads it with ps, and the engine prints it into the journal",
        "0600 files, LoadCredential=, and a masked journal",
    ),
    "secret-env": (
        "every user of the host reads it with systemctl show",
        "0600 files, LoadCredential=",
    ),
    "log-file": (
        "what the engine says is not in the journal: nothing rotates it, and nobody reads of "
        "a start that fails",
        "the journal, which every gate reads",
    ),
    "network": (
        "says that networking has begun, not that there is an address: a start at boot may "
        "find none",
        "After= and Wants=network-online.target",
    ),
    "network-half": (
        "wants without after does not wait, after without wants waits for nothing",
        "both",
    ),
    "driver": (
        "at boot the engine may start before the driver's own services are ready",
        "After=nvidia-persistenced.service nvidia-fabricmanager.service",
    ),
    "mounts": (
        "if the disk with the model is not mounted, it starts on an empty folder, and may "
        "fetch the model onto the root disk",
        "RequiresMountsFor= the model",
    ),
    "sleep": (
        "waits for a time instead of a thing: too short after a slow boot, too long else",
        "order after what is needed, and gates",
    ),
    "kill-others": (
        "ends every process of that name, those of other services too",
        "KillMode=mixed leaves nothing behind; GPU memory of others is a reason to stop and tell",
    ),
    "detached": (
        "systemd watches the wrapper, not the engine: a crash is not seen, a stop does not "
        "reach it",
        "systemd starts the engine itself",
    ),
    "shell": (
        "the shell gets the stop signal, and the engine is not drained",
        "systemd starts the engine itself",
    ),
    "container": (
        "systemd watches the client: the engine is another tree of processes, which outlives it",
        "no container: systemd starts the engine itself",
    ),
    "latest": (
        "another engine after the next pull, without a change of the unit",
        "engine.version is exact",
    ),
    "open": (
        "whoever reaches the host may use the engine, and its administration",
        "127.0.0.1 unless host says otherwise, and secrets.api-key",
    ),
    "condition": (
        "where it does not hold, the unit stays inactive without a failure: nobody is told",
        "a gate fails, and says why",
    ),
    "user-unit": (
        "a unit of a user: it cannot wait for units of the system, and ends when the user "
        "logs out (without linger)",
        "a unit of the system, WantedBy=multi-user.target",
    ),
    "preload": (
        "another library in place of the one that the engine was built with: it is carried, "
        "and no longer fits after the next version",
        "nothing is preloaded unless env says so",
    ),
    "comment": (
        "no comment: systemd takes its words for variables, and ignores them with a warning",
        "comments stand in the description",
    ),
    "env-file": (
        "without the file the engine starts with empty values",
        "all values stand in the unit",
    ),
}
