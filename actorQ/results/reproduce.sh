#!/usr/bin/env bash
# Makes the results in this folder: fp32 against int8 actors, all else equal, on two cores.
#
#   actorQ/results/reproduce.sh LOGDIR [SEED ...]        (default: seeds 0 and 1)
#
# Per learner step a whole batch of fresh transitions is needed (1 sample per insert), so that the
# actor and not the learner is the bottleneck, as with the paper's GPU learner. Every process has
# its core (--pin_cpus); precisions take turns, so that noise of the machine hits both alike. Runs
# that are there already are kept. Nothing else should run on the machine meanwhile.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
logs="${1:?usage: reproduce.sh LOGDIR [SEED ...]}"
shift
seeds=("${@:-}")
[[ -n "${seeds[0]}" ]] || seeds=(0 1)
python="$root/.venv/bin/python"

train() { # train NAME QUANTIZE SEED TASK BATCH EXTRA-FLAGS...
  local folder="$1-q$2-s$3" quantize="$2" seed="$3" task="$4" batch="$5"
  shift 5
  [[ -e "$logs/$folder/plots" ]] && return
  rm -rf "${logs:?}/$folder"
  "$root/run_multiprocess.sh" "$logs" "$task" 2048,2048,2048 4000 1 "$batch" 1 "$quantize" 32 30 0 \
    --seed="$seed" --run_name="$folder" --pin_cpus=1 --push_period_s=5 "$@"
}

table() { # table NAME RETURN
  "$python" -m actorQ.scripts.speedup_table --fp32 "$logs/$1"-q32-s* \
    --quantized "$logs/$1"-q8-s* --target "$2" --out "$root/actorQ/results/$1"
  "$python" -m actorQ.scripts.breakdown_table "$logs/$1-q32-s${seeds[0]}" \
    "$logs/$1-q8-s${seeds[0]}" --out "$root/actorQ/results/$1"
  for run in "$logs/$1"-q*-s*; do # The raw logs beside the tables.
    for file in config.json learner/train.csv learner/evaluation.csv broadcaster/updates.csv \
      actor_1/phases.csv; do
      mkdir -p "$root/actorQ/results/$1/$(basename "$run")/$(dirname "$file")"
      cp "$run/$file" "$root/actorQ/results/$1/$(basename "$run")/$file"
    done
  done
}

for seed in "${seeds[@]}"; do
  for quantize in 32 8; do
    train cartpole_balance "$quantize" "$seed" dm_control,cartpole_balance 128 \
      --policy_learning_rate=1e-5 --critic_learning_rate=3e-4 --target_update_period=25 \
      --vmin=0 --vmax=100 --min_replay_size=20000 \
      --eval_period_s=8 --stop_return=941 --stop_window=10
  done
  for quantize in 32 8; do
    train cartpole_gym "$quantize" "$seed" gym,CartPole-v0 128 \
      --learning_rate=2.5e-5 --target_update_period=50 --epsilon_max=0.1 \
      --min_replay_size=10000 --replay_table_max_replay_size=20000 \
      --eval_period_s=3 --stop_return=195 --stop_window=10
  done
done
table cartpole_balance 941.22
table cartpole_gym 195
