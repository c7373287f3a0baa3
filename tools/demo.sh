#!/usr/bin/env bash
# Real hosts, the reference deployment, a fault that restores itself. See demo.py.
set -euo pipefail
exec "${PYTHON:-python}" "$(dirname "$0")/demo.py"
