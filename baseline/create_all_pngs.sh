#!/usr/bin/env bash
# Draws every sweet-spot plot of a results file, and a grid for each algorithm.
#
#   baseline/create_all_pngs.sh [RESULTS.csv] [--qat] [--out=FOLDER] [--flag=value ...]
#
# RESULTS.csv: quantized/ptq.csv where none is given, with --qat logs/qat/qat.csv. Figures go to
# plots/ beside it.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$root/.venv/bin/python"
[[ -x "$python" ]] || python=python3
results=()
if [[ $# -gt 0 && "$1" != -* ]]; then
  results=(--results="$1")
  shift
fi
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" \
  exec "$python" -m baseline.collate --all ${results[@]+"${results[@]}"} "$@"
