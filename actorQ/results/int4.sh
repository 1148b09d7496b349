#!/usr/bin/env bash
# Compares 4-bit with 8-bit actors at equal settings: does int4 learn, and play, as well?
#
#   actorQ/results/int4.sh LOGDIR [SEED ...]             (default: seeds 0 and 1)
#
# Policies of 3x256. Writes actorQ/results/int4/returns.csv: the final policy of every run, played
# for 20 episodes at 32, 8 and 4 bits. Runs that are there already are kept.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
logs="${1:?usage: int4.sh LOGDIR [SEED ...]}"
shift
seeds=("${@:-}")
[[ -n "${seeds[0]}" ]] || seeds=(0 1)
results="$root/actorQ/results/int4"
mkdir -p "$results"

train() { # train NAME TASK QUANTIZE SEED STEPS EXTRA-FLAGS...
  local folder="$1-q$3-s$4" task="$2" quantize="$3" seed="$4" steps="$5"
  shift 5
  [[ -e "$logs/$folder/plots" ]] && return
  rm -rf "${logs:?}/$folder"
  "$root/run_multiprocess.sh" "$logs" "$task" 256,256,256 "$steps" --quantize="$quantize" \
    --preset=none --inference_mode=native --seed="$seed" --run_name="$folder" "$@"
}

for seed in "${seeds[@]}"; do
  for quantize in 8 4; do
    train cartpole_balance dm_control,cartpole_balance "$quantize" "$seed" 6000
    train cartpole_gym gym,CartPole-v0 "$quantize" "$seed" 30000 --target_update_period=50 \
      --epsilon_max=0.1 --min_replay_size=5000 --stop_return=195 --stop_window=8 --eval_period_s=3
  done
done

csv="$results/returns.csv"
echo "task,actors_bits,seed,learner_steps,played_bits,mean_return,std_return,episodes" >"$csv"
for seed in "${seeds[@]}"; do
  for name in cartpole_balance cartpole_gym; do
    for quantize in 8 4; do
      run="$logs/$name-q$quantize-s$seed"
      steps="$(tail -1 "$run/learner/train.csv" | cut -d, -f3)"
      for bits in 32 8 4; do
        line="$("$root/.venv/bin/python" -m actorQ.evaluate "$run" --episodes 20 \
          --quantize "$bits" --inference_mode native | tail -1)"
        read -r mean std <<<"$(sed -E 's/.*return ([-0-9.]+) \+- ([0-9.]+) .*/\1 \2/' <<<"$line")"
        echo "$name,$quantize,$seed,$steps,$bits,$mean,$std,20" >>"$csv"
      done
      mkdir -p "$results/$(basename "$run")"
      cp "$run"/config.json "$run"/learner/evaluation.csv "$results/$(basename "$run")"
    done
  done
done
cat "$csv"
