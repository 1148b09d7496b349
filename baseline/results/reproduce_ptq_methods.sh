#!/usr/bin/env bash
# Post-training methods beside each other, for agents in the zoo's layout:
#     baseline/results/reproduce_ptq_methods.sh AGENTS [OUT]      (OUT: logs/ptq_methods)
# Every agent at 8, 6, 5, 4, 3 and 2 bits, with a scale for each tensor and for each output, 102
# episodes a cell. A cell is written once it is measured: the same command goes on from there.
# OUT gets ptq.csv, methods.csv, methods.md and methods.png.
set -euo pipefail
agents="${1:?names the folder of agents}"
out="${2:-logs/ptq_methods}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

OMP_NUM_THREADS=1 .venv/bin/python -m baseline.ptq_methods --folder "$agents" --out "$out" \
    --episodes 34 --seeds 0,2,4 --bits 8,6,5,4,3,2
