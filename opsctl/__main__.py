"""`python -m opsctl`: the same command where the console script is not on the PATH."""

import sys

from opsctl.cli.entry import run

if __name__ == "__main__":
    sys.exit(run())
