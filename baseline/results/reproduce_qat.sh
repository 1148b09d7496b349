#!/usr/bin/env bash
# What made the figures in baseline/results/qat:
#     baseline/results/reproduce_qat.sh [OUT]      (OUT: logs/qat)
# Five hours of one core, on two cores half of that; an interrupted run goes on where it stopped.
set -euo pipefail
out="${1:-logs/qat}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=.venv/bin/python
pairs=(
    ppo CartPole-v1 a2c CartPole-v1 dqn CartPole-v1
    ppo MountainCarContinuous-v0 a2c MountainCarContinuous-v0
)

baseline/qat_benchmark.sh "${pairs[@]}" --folder "$out"
# The tuned settings are 300,000 steps with batches of 256: four hours of one core for 24 runs.
baseline/qat_benchmark.sh ddpg MountainCarContinuous-v0 -n 50000 --hyperparams batch_size:128 \
    --folder "$out"
"$python" -m baseline.collate --qat --all --results "$out/qat.csv"

mkdir -p "$out/integer"
failed=0
set -- "${pairs[@]}" ddpg MountainCarContinuous-v0
while [[ $# -gt 0 ]]; do
    # Fails where the forms do not act alike: the others are measured nevertheless.
    "$python" -m baseline.qat_integer --algo "$1" --env "$2" --folder "$out/8" \
        --out "$out/integer/$1_$2.json" || failed=1
    shift 2
done
"$python" -m baseline.qat_speed --out "$out"
exit "$failed"
