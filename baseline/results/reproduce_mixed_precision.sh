#!/usr/bin/env bash
# What made the figures in baseline/results/mixed_precision:
#     baseline/results/reproduce_mixed_precision.sh [OUT]      (OUT: logs/mixed_precision)
# About an hour and a half on two idle cores; trainings that are there are not repeated. Each part is
# published when it is done. DEVICE=cuda PRECISION=fp16 measures a GPU as the paper did (set up with
# `./setup_ubuntu.sh --torch cuda`).
set -euo pipefail
out="${1:-logs/mixed_precision}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=.venv/bin/python
study=("$python" -m baseline.mixed_precision)
device=(--device "${DEVICE:-cpu}" --out "$out/results")

# What one commits, and what `python -m baseline.report` reads.
publish() {
    mkdir -p baseline/results/mixed_precision
    cp -r "$out/results/." baseline/results/mixed_precision/
}

# Losses first: the longest gradient steps, nothing else at the same time.
"${study[@]}" parity --policy A,B,C --precision "${PRECISION:-auto}" --threads 2 "${device[@]}"
publish
# Run time of what half precision costs or saves, whatever the default would choose ...
"${study[@]}" timing --policy A,B,C --precision "${PRECISION:-bf16}" --threads 1,2 "${device[@]}"
publish
# ... and that the default is not slower than fp32, also where it stays with fp32.
"${study[@]}" timing --policy A,B,C --precision auto --threads 1 --device "${DEVICE:-cpu}" \
    --out "$out/results/auto"
publish
# Whole trainings: twice six, of a minute or two each. CartPole's last policy is luck at any
# precision; Acrobot's is steadier.
OMP_NUM_THREADS=1 "${study[@]}" returns --env CartPole-v1 --precision "${PRECISION:-auto}" \
    --folder "$out/agents" "${device[@]}"
OMP_NUM_THREADS=1 "${study[@]}" returns --env Acrobot-v1 --precision "${PRECISION:-auto}" \
    --folder "$out/agents" --device "${DEVICE:-cpu}" --out "$out/results/acrobot"
publish
# The same for ActorQ's learner (--learner_precision bfloat16): losses and memory. (Its steps per
# second: actorQ.benchmarks.learner, in actorQ/results/benchmarks; returns:
# actorQ/results/reproduce.sh learner_precision.)
if [[ "${DEVICE:-cpu}" == cpu ]]; then
    "$python" -m actorQ.benchmarks.learner_parity --out "$out/results/actorq"
    publish
fi
