#!/usr/bin/env bash
# What made the figures in baseline/results, from agents in the zoo's layout:
#     baseline/results/reproduce.sh AGENTS [OUT]      (OUT: logs/results)
# AGENTS must hold the zoo's dqn CartPole-v1, LunarLander-v2 and MountainCar-v0, and ddpg
# HopperBulletEnv-v0, MountainCarContinuous-v0 and Pendulum-v1; of other agents: baseline/all.sh.
# Two hours on two cores; an interrupted run goes on where it stopped. Train the Atari agent first:
#     OMP_NUM_THREADS=1 .venv/bin/python -m baseline.train --algo ppo --env BreakoutNoFrameskip-v4 \
#         -n 4400000 --seed 1 --precision bf16 --save_freq 100000 --folder logs/atari
# An agent that cannot be measured (SAC with gSDE) is told, and ends it before the tables: leave it out.
set -euo pipefail
agents="${1:?names the folder of agents}"
out="${2:-logs/results}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=.venv/bin/python

# 102 episodes a row. Weights, as in the paper; then activations too; then a scale per output, for the
# agents that lose most with more widths.
baseline/all.sh --folder "$agents" --episodes 34 --out "$out/ptq"
baseline/all.sh --folder "$agents" --episodes 34 --out "$out/ptq" --scheme weights+activations \
    --bits 8,6,4,2
baseline/benchmark.sh dqn CartPole-v1 dqn LunarLander-v2 dqn MountainCar-v0 \
    ddpg HopperBulletEnv-v0 ddpg MountainCarContinuous-v0 ddpg Pendulum-v1 \
    --folder "$agents" --episodes 34 --out "$out/ptq" --granularity channel \
    --bits 16,12,10,8,6,4,2
baseline/all.sh --folder "$agents" --episodes 34 --out "$out/ptq" --granularity channel \
    --bits 8,6,4,2
if [[ -d logs/atari/ppo ]]; then
    # Games are long: 30 a row.
    baseline/all.sh --folder logs/atari --episodes 10 --out "$out/ptq" \
        --bits 8,fp16,4,6,2,16,12,10,bf16 --note "30 games: Atari is slow"
    "$python" -m baseline.learning_curve logs/atari/ppo/BreakoutNoFrameskip-v4_1 --out "$out/atari"
fi

"$python" -m baseline.table --results "$out/ptq/ptq.csv" --out "$out/ptq/table.md"
"$python" -m baseline.table --results "$out/ptq/ptq.csv" --out "$out/ptq/table_channel.md" \
    --granularity channel
"$python" -m baseline.table --results "$out/ptq/ptq.csv" --out "$out/ptq/table_activations.md" \
    --scheme weights+activations
baseline/create_all_pngs.sh "$out/ptq/ptq.csv"
"$python" -m baseline.findings --results "$out/ptq/ptq.csv" --folder "$agents" \
    --out "$out/findings"
"$python" -m baseline.integer_benchmark --folder "$agents" --out "$out/integer"
if [[ -d logs/atari/ppo ]]; then
    "$python" -m baseline.integer_benchmark ppo BreakoutNoFrameskip-v4 --folder logs/atari \
        --episodes 1 --states 2000 --calibration_episodes 2 --out "$out/integer"
fi
