"""The console script. A Ctrl-C ends quietly even while the rest is imported (0.4 s)."""

from __future__ import annotations

import sys
from typing import Any


def run() -> Any:
    try:
        from opsctl.cli.main import main

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
