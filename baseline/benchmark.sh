#!/usr/bin/env bash
# Sweeps one agent: 32 to 2 bits in steps of two, fp16 and bf16, over three seeds.
#     baseline/benchmark.sh ALGO ENV [--folder F] [--out O] [--episodes N] ...
# Goes on where an interrupted sweep stopped. `--help` lists the flags.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$root/.venv/bin/python"
[[ -x "$python" ]] || python=python3
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m baseline.sweep "$@"
