"""A stand-in for sglang.launch_server that tells its key in every way that an engine might.

The tests copy it as sglang/launch_server.py. CANARY_END is what the main process does at the end.
"""

import hashlib
import logging
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

FORMAT = "[2026-03-01 23:45:08 TP%d] %%(message)s"


def child(args, depth):
    """A process as the engine spawns them: its own logging, and one more process below."""
    logging.basicConfig(level=logging.INFO, format=FORMAT % depth)
    logging.info(f"server_args=ServerArgs(api_key={args['api-key']!r})")
    print("child", args["api-key"])
    if depth < 2:
        spawn(args, depth + 1)
    else:
        raise RuntimeError(f"a crash tells {args['api-key']}")


def spawn(args, depth):
    from sglang import launch_server

    context = multiprocessing.get_context("spawn")
    one = context.Process(target=launch_server.child, args=(args, depth))
    one.start()
    one.join()


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def tell(args):
    print("argv", sys.argv)
    print("pem", os.environ["PEM"], repr(os.environ["PEM"]))
    for piece in (args["api-key"][:9], args["api-key"][9:], "!\n"):
        sys.stderr.write(piece)
        sys.stderr.flush()
    sys.stdout.buffer.write(b"raw " + args["api-key"].encode() + b"\n")
    print("no newline " + args["api-key"], end="", flush=True)
    print(" bar\r", end="", flush=True)


def end(how):
    if how == "drain":
        signal.signal(signal.SIGTERM, lambda *_: (print("drained"), sys.exit(0)))
    print("ready")
    if how == "killed":
        print("last words")
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "drain":
        time.sleep(60)
    sys.exit(int(how))


if __name__ == "__main__":
    print("main", __name__, os.getpid(), Path(sys.argv[0]).name)
    found = dict(a[2:].split("=", 1) for a in sys.argv[1:] if "=" in a)
    print("flags", " ".join(a for a in sys.argv[1:] if "api-key" not in a))
    print("digests", *map(digest, (found["api-key"], found["admin-api-key"], os.environ["PEM"])))
    tell(found)
    spawn(found, 0)
    print(Path("/proc/self/cmdline").read_text().replace("\0", " "))
    end(os.environ.get("CANARY_END", "7"))
