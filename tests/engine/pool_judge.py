"""Runs inside an engine's own environment: what would it allocate for a model?

Each line of stdin is a case as JSON, each line of stdout the answer, or {"error": text}. The engine
decides everything: its ServerArgs resolves the flags, its ModelConfig reads config.json, its
profiling function turns free memory into tokens, and its pool classes allocate. What stands in for
a machine with GPUs is named in `pool_judge_common`, and in the file of each version.

A case: {"config": config.json, "draft": config.json, "inside" (the checkpoint) or null,
"flags": {dest: value}, "env": {name: value}, "before": GiB, "after": GiB, "memory_mib": MiB of a
card, "host_available": bytes, "stage": index of the pipeline stage}.
"""

import contextlib
import gc
import json
import logging
import os
import sys
import traceback
from pathlib import Path


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine prints is no answer
    sys.path.insert(0, str(Path(__file__).parent))
    from importlib.metadata import version

    logging.disable(logging.CRITICAL)
    if version("sglang") == "0.5.9":
        import pool_judge_0_5_9 as engine
    else:
        import pool_judge_0_5_23 as engine

    # 0.5.23 collects garbage before it measures: not what the imports left.
    gc.freeze()

    def say(answer):
        out.write(json.dumps(answer) + "\n")
        out.flush()

    say({"version": version("sglang")})
    for line in sys.stdin:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                answer = engine.judge(json.loads(line))
            say(answer)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            say(
                {
                    "error": f"{type(error).__name__}: {error}",
                    "where": f"{Path(where.filename).name}:{where.lineno}",
                    "trace": traceback.format_exc() if os.environ.get("JUDGE_TRACE") else "",
                }
            )


main()
