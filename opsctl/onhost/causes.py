"""Which lines of a failed start are its cause, which only its consequence.

A row is a pattern, a name, a weight, and what an operator reads. The heaviest line is the cause;
among equals the earliest. Sources: public reports of failed starts and the released packages of
0.5.9 and 0.5.23. Things worth knowing: the engine kills its own process tree, so status=9/KILL is
not the kernel's OOM killer; "Capture cuda graph failed" wraps any exception; a rank that loses its
peers logs an NCCL error that is not the cause; "[Gloo] Rank 0 is connected to 0 peer ranks" and
"Ignore import error" are normal.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Pattern


class Cause(NamedTuple):
    name: str
    weight: int  # 90: names the fault; 60: an exception; 30: a consequence; 10: the end itself
    words: str
    pattern: Pattern[str]


def _cause(name: str, weight: int, words: str, pattern: str) -> Cause:
    return Cause(name, weight, words, re.compile(pattern))


# Where a line fits two rows the first wins.
CAUSES: List[Cause] = [
    _cause(
        "host-memory",
        95,
        "the host has too little memory for the pools of the hierarchical cache",
        r"Not enough host memory|No host memory is left for HiCache"
        r"|Cannot automatically size HiCache host memory",
    ),
    _cause(
        "host-oom",
        95,
        "the kernel's OOM killer ended a process of the service",
        r"(?:Out of memory|Memory cgroup out of memory): Killed process"
        r"|killed by the OOM killer|[Rr]esult[=:]? '?oom-kill|constraint=CONSTRAINT_(?:MEMCG|NONE)",
    ),
    _cause(
        "host-pin",
        95,
        "the host memory of the cache could not be pinned",
        r"cudaHostRegister failed|Pinned host memory allocation of",
    ),
    _cause(
        "memory-registration",
        90,
        "memory could not be registered; see LimitMEMLOCK",
        r"Failed to register memory",
    ),
    _cause(
        "gpu-memory",
        94,
        "a GPU has too little memory",
        r"CUDA out of memory|OutOfMemoryError|HIP out of memory|CUDA error: out of memory"
        r"|cudaErrorMemoryAllocation",
    ),
    _cause(
        "gpu-fraction",
        94,
        "the weights leave no room for the KV cache under mem-fraction-static",
        r"Not enough memory\. Please try to increase --mem-fraction-static"
        r"|Loaded weights leave no GPU memory",
    ),
    _cause(
        "gpu-unbalanced",
        93,
        "one GPU has less free memory than the others: another process, or another kind of card",
        r"The memory capacity is unbalanced",
    ),
    _cause(
        "arguments",
        95,
        "the engine refused its command line",
        r"launch_server\.py: error:|sglang(?: serve)?: error:|error: (?:unrecognized arguments"
        r"|argument -|the following arguments are required|ambiguous option)",
    ),
    _cause(
        "port-in-use",
        92,
        "a port is in use",
        r"EADDRINUSE|[Aa]ddress already in use|error while attempting to bind on address"
        r"|port \d+ (?:is|was) (?:already )?(?:in use|used)|rpc_port .* is used by a process",
    ),
    _cause(
        "driver",
        93,
        "the GPU driver is not usable",
        r"Driver/library version mismatch|Error 802: system not yet initialized"
        r"|CUDA driver version is insufficient|NVIDIA driver on your system is too old"
        r"|no CUDA-capable device|Found no NVIDIA driver",
    ),
    _cause(
        "gpu-fault",
        93,
        "a GPU reported a hardware or firmware fault",
        r"NVRM: Xid|CUDA error: (?:unspecified launch failure|uncorrectable ECC|the launch timed)"
        r"|GPU is lost|illegal memory access|fallen off the bus",
    ),
    _cause(
        "kernels",
        92,
        "the engine's kernels do not fit this GPU, torch or driver",
        r"Could not load any common_ops|undefined symbol|no kernel image is available"
        r"|(?:backends?|is|are) (?:are |is |not )?(?:only )?supported on (?:Blackwell|SM|Hopper)"
        r"|does not support backend|named symbol not found|GPU arch\S* .* not supported",
    ),
    _cause(
        "library",
        92,
        "a shared library is missing",
        r"cannot open shared object file",
    ),
    _cause(
        "compile",
        92,
        "the compiler for run-time kernels is missing or misplaced",
        r"Could not find nvcc|nvcc: (?:not found|No such file)|Ninja is required|ninja: not found",
    ),
    _cause(
        "shared-memory",
        92,
        "/dev/shm is too small",
        r"Error while creating shared memory segment|posix_fallocate failed"
        r"|unable to (?:open|write to) (?:shared memory|/dev/shm)",
    ),
    _cause(
        "file-limit",
        92,
        "too many open files; see LimitNOFILE",
        r"Too many open files",
    ),
    _cause(
        "permission",
        91,
        "a file or cache folder may not be written by the service's user",
        r"PermissionError|Permission denied",
    ),
    _cause("disk", 91, "no space is left", r"No space left on device"),
    _cause(
        "model-access",
        91,
        "the model could not be fetched; a path on the host was expected",
        r"401 Client Error|403 Client Error|GatedRepoError|RepositoryNotFoundError"
        r"|LocalEntryNotFoundError|OfflineModeIsEnabled|We couldn't connect to",
    ),
    _cause(
        "model-files",
        91,
        "the model's files are missing, incomplete or of an unknown kind",
        r"SafetensorError|Cannot find any model weights|does not recognize this architecture"
        r"|Model architectures .* (?:are )?not supported|is not a (?:local folder|valid model)"
        r"|Error no file named|already used by a Transformers model",
    ),
    _cause(
        "warmup",
        90,
        "the warm-up request failed; look for http_proxy in the environment",
        r"Initialization failed\. warmup error|AssertionError: res=<Response \[\d+\]>",
    ),
    _cause(
        "nccl",
        55,
        "the ranks could not talk to each other",
        r"NCCL WARN|NCCL error|ncclUnhandled|ncclSystemError|ncclInternalError|ncclRemoteError"
        r"|No route to host|DistBackendError|Gloo connectFullMesh failed"
        r"|Connection (?:closed|reset) by peer",
    ),
    _cause(
        "graph",
        65,
        "capturing the CUDA graphs failed",
        r"Capture cuda graph failed",
    ),
    _cause(
        "watchdog",
        50,
        "a rank did not finish a batch in time",
        r"(?:Scheduler w|W)atchdog timeout",
    ),
    _cause(
        "health",
        40,
        "the scheduler gave no answer",
        r"[Hh]ealth check failed\. [Ss]erver could ?n[o']t",
    ),
    _cause(
        "start-limit",
        35,
        "systemd gave up after too many starts: reset-failed",
        r"Start request repeated too quickly|start-limit-hit",
    ),
    _cause(
        "credentials",
        92,
        "a credential file of the unit is missing",
        r"Failed to set up credentials|243/CREDENTIALS",
    ),
    _cause(
        "exec",
        92,
        "systemd could not run the unit's command",
        r"Failed at step \w+ spawning|20[0-9]/(?:EXEC|USER|GROUP|CHDIR)|21[0-9]/(?:USER|GROUP)",
    ),
    _cause(
        "environment-file",
        92,
        "a file of variables (EnvironmentFile=) of the unit could not be read",
        r"Failed to load environment files: ",
    ),
    _cause(
        "child",
        10,
        "a process of the engine ended and took the others along",
        r"[Rr]eceived sigquit from a child proces|SIGQUIT received|Scheduler hit an exception"
        r"|scheduler is dead|scheduler died|DataParallelController hit an exception"
        r"|Detokenizer\S* hit an exception|^EOFError"
        r"|Initialization failed\. Please see the error messages above",
    ),
]

# Only these always end the start. Anything else may be caught and lived with by the engine; if it
# is not, one of these follows at once.
FATAL = {"child", "arguments", "warmup", "host-oom", "exec", "credentials", "start-limit"}

# An exception whose text fits no row: still better evidence than the engine's farewell.
EXCEPTION = Cause(
    "exception",
    60,
    "the engine raised an exception",
    re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception)(?::|$)"),
)
_NOISE = re.compile(
    r"Ignore import error|UserWarning|FutureWarning|DeprecationWarning|libnuma\.so"
    r"|^(?:Receive|Finish): "  # request texts, if somebody logs them
    r"|is connected to \d+ peer ranks|Fail to set RLIMIT|HTTP/1\.\d\" \d"
)


def classify(text: str) -> Optional[Cause]:
    """What a line says about a failure; None for a line that says nothing about one."""
    if _NOISE.search(text):
        return None
    for cause in CAUSES:
        if cause.pattern.search(text):
            return cause
    return EXCEPTION if EXCEPTION.pattern.match(text) else None
