#!/usr/bin/env bash
# Trains with quantization at 32 (none), 8, 7, 6, 5, 4, 3 and 2 bits over three seeds.
#     baseline/qat_benchmark.sh ALGO ENV [-n STEPS] [--quant_delay STEPS] [--train_seeds 0,1,2] ...
# Goes on where an interrupted sweep stopped. `--help` lists the flags.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$root/.venv/bin/python"
[[ -x "$python" ]] || python=python3
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m baseline.qat_sweep "$@"
