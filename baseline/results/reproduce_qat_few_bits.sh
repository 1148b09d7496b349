#!/usr/bin/env bash
# Trains with few bits, by straight-through estimates (ste) and by learned steps (lsq):
#     baseline/results/reproduce_qat_few_bits.sh [OUT [HOPPER_STEPS [HALFCHEETAH_STEPS]]]
# OUT: logs/qat_few_bits. Steps: as tuned, a million each, or HalfCheetah as Hopper. The published
# trainings have 300000 and 100000.
# An interrupted run goes on where it stopped. Minutes of one core for a training, by one measurement
# of some hundred steps: DQN 1 to 3, PPO on MountainCarContinuous 1 to 2, DDPG up to 16, Hopper 26,
# HalfCheetah 31 to 40. There are 21, 27, 15, 21 and 21 trainings: a day of one core.
set -euo pipefail
out="${1:-logs/qat_few_bits}"
hopper=(${2:+-n "$2"})
half_cheetah=("${hopper[@]}")
[[ -z "${3:-}" ]] || half_cheetah=(-n "$3")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

sweep() {
    local method
    for method in minmax distill auto; do  # Each quantizes the controls; trainings are made once.
        baseline/qat_benchmark.sh "$@" --estimator ste,lsq --folder "$out" --ptq_method "$method"
    done
}

for last in "" 8; do
    sweep dqn CartPole-v1 --bits 32,2 ${last:+--last_bits "$last"}
    sweep ppo MountainCarContinuous-v0 --bits 32,3,2 ${last:+--last_bits "$last"}
done
sweep dqn CartPole-v1 --bits 32,2 --last_bits 8 --percentile 99
# These are the steps and the batch size of reproduce_qat.sh.
sweep ddpg MountainCarContinuous-v0 --bits 32,3,2 -n 50000 --hyperparams batch_size:128
sweep ppo Hopper-v5 --bits 32,4,3,2 "${hopper[@]}"
sweep ppo HalfCheetah-v5 --bits 32,4,3,2 "${half_cheetah[@]}"
.venv/bin/python -m baseline.collate --qat --all --results "$out/qat.csv"
