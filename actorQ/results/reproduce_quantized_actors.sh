#!/usr/bin/env bash
# This measures what actors with few bits learn, with and without a learner that quantizes as well:
#     actorQ/results/reproduce_quantized_actors.sh [OUT]      (OUT: logs/quantized_actors)
# It trains on three tasks with three seeds, in fp32, 4 and 3 bits, for an hour and a half on two
# cores. A run that is there is not made again: the same command goes on. Afterwards each run's policy
# plays in full precision and with its bits. OUT/report gets runs.csv, table.md and figures.png.
set -euo pipefail
out="${1:-logs/quantized_actors}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

steps() {  # steps TASK: its learner steps
  case "$1" in
    *cheetah_run) echo 12000 ;;  # The published reward takes twice as many.
    *CartPole-v1) echo 6000 ;;
    *) echo 4000 ;;
  esac
}

train() {  # train TASK BITS LEARNER_BITS SEED
  local name="${1#*,}-$2-$3-s$4"
  if [[ -f "$out/$name/plots/quantization.png" ]]; then return; fi  # The end of a run draws it.
  rm -rf "${out:?}/$name"
  ./run_multiprocess.sh --logdir="$out" --run_name="$name" --taskstr="$1" --seed="$4" \
    --quantize="$2" --learner_fake_quantize="$3" --inference_mode=native --meter_period_s=2 \
    --num_episodes="$(steps "$1")" --stop_return=none
}

for task in ${TASKS:-dm_control,cartpole_balance gym,CartPole-v1 dm_control,cheetah_run}; do
  for bits in ${BITS:-32 4 3}; do
    for seed in 0 1 2; do
      train "$task" "$bits" 32 "$seed"
      if [[ $bits != 32 ]]; then train "$task" "$bits" "$bits" "$seed"; fi
    done
  done
done
# A run failed below nine tenths of the published reward: see docs/results/tasks.md. cheetah_run
# ends too early for that.
.venv/bin/python -m actorQ.scripts.quantization_table "$out"/*-s[0-9] --out "$out/report" \
  --least cartpole_balance=847 CartPole-v1=428
