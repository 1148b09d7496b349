#!/usr/bin/env bash
# What made the figures in baseline/results/deployment:
#     baseline/results/reproduce_deployment.sh [OUT]      (OUT: logs/deployment)
# Trains navigation policies of the paper's three sizes with PPO, and measures
# them: about two and a half hours of one core (10, 20 and 120 minutes of training, a few minutes for
# the rest). An interrupted training goes on where it stopped; what is measured is published as soon
# as the two small policies are there, and again with the large one. DEVICE=cuda trains on a GPU.
set -euo pipefail
out="${1:-logs/deployment}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=.venv/bin/python
env=DroneNavigation-v0

# finished FOLDER: has a run in it reached its number of steps?
finished() {
    "$python" - "$1" "$env" <<'PYTHON'
import sys
from baseline import training_state
sys.exit(not any(run.finished for run in training_state.runs(sys.argv[1], "ppo", sys.argv[2])))
PYTHON
}

# train NAME STEPS HYPERPARAMS...: into OUT/NAME, unless it is there and finished.
train() {
    local name="$1" steps="$2"
    shift 2
    if finished "$out/$name"; then
        return
    fi
    local resume=()
    if compgen -G "$out/$name/ppo/${env}_*/$env.zip" >/dev/null; then
        resume=(--resume)
    fi
    OMP_NUM_THREADS=1 "$python" -m baseline.train --algo ppo --env "$env" -n "$steps" \
        --device "${DEVICE:-cpu}" --save_freq 200000 --folder "$out/$name" "${resume[@]}" \
        --hyperparams "$@"
}

# measure NAMES...: exports and measures them, and publishes what one commits and what
# `python -m baseline.report` reads.
measure() {
    local name runs agents=()
    for name in "$@"; do
        runs=("$out/$name/ppo/${env}_"*)
        agents+=("${runs[-1]}")
        "$python" -m baseline.deploy "${runs[-1]}" --out "$out/files/$name"
    done
    "$python" -m baseline.deploy_benchmark "${agents[@]}" --formats onnx,tflite,torchscript \
        "${arm[@]}" --out "$out/results"
    mkdir -p baseline/results/deployment
    cp -r "$out/results/." baseline/results/deployment/
}

# ARM's builds of the runtimes play the files as well, under an emulator, where its packages are.
arm=()
if [[ -x $out/aarch64/python ]] || baseline/aarch64_setup.sh "$out/aarch64"; then
    arm=(--aarch64_python "$out/aarch64/python")
fi

# The value function's network is no part of the policy: of the same size for all.
train 64 3000000 "policy_kwargs:dict(net_arch=dict(pi=[64,64,64],vf=[256,256]))"
train 256 3000000 "policy_kwargs:dict(net_arch=dict(pi=[256,256,256],vf=[256,256]))"
finished "$out/4096" || measure 64 256
train 4096 3000000 "policy_kwargs:dict(net_arch=dict(pi=[4096,512,1024],vf=[256,256]))" \
    learning_rate:lin_2e-4
measure 64 256 4096
