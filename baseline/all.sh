#!/usr/bin/env bash
# Sweeps every agent found in --folder: 32 to 2 bits, fp16 and bf16, over three seeds.
#     baseline/all.sh [--folder F] [--out O] [--episodes N] ...
# Goes on where an interrupted sweep stopped. `--help` lists the flags.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$root/.venv/bin/python"
[[ -x "$python" ]] || python=python3
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m baseline.sweep --all "$@"
