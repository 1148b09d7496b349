#!/usr/bin/env bash
# What made the figures in baseline/results/deployment:
#     baseline/results/reproduce_deployment.sh [OUT]      (OUT: logs/deployment)
# Trains navigation policies of the paper's three sizes with PPO, and measures
# them: about an hour of one core (20, 8 and 30 minutes of training, a few minutes for the
# rest). An interrupted training goes on where it stopped; what is measured is published as soon
# as the two small policies are there, and again with the large one. DEVICE=cuda trains on a GPU.
set -euo pipefail
out="${1:-logs/deployment}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=.venv/bin/python
env=DroneNavigation-v0
export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-2}"  # Without TensorFlow's remarks on processors.

# hyperparams NAME: of that policy's training, one a line. The value function's network is no part of
# the policy: of the same size for all.
hyperparams() {
    case "$1" in
        4096) printf '%s\n' "policy_kwargs:dict(net_arch=dict(pi=[4096,512,1024],vf=[256,256]))" \
                            learning_rate:lin_2e-4 ;;
        *)    printf '%s\n' "policy_kwargs:dict(net_arch=dict(pi=[$1,$1,$1],vf=[256,256]))" ;;
    esac
}

# steps NAME: environment steps of that policy's training.
steps() {
    if [ "$1" = 64 ]; then echo 3000000; else echo 1000000; fi
}

# run_of STATE NAME: prints the folder of the newest run in OUT/NAME of just these steps and
# hyper-parameters that is 'finished' or 'unfinished'; fails where there is none.
run_of() {
    local lines
    mapfile -t lines < <(hyperparams "$2")
    "$python" - "$1" "$out/$2" "$env" "$(steps "$2")" "${lines[@]}" <<'PYTHON'
import sys
from baseline.train import state as training_state
state, folder, env, steps, *lines = sys.argv[1:]
wanted = dict(line.split(":", 1) for line in lines)
for run in training_state.runs(folder, "ppo", env):
    same = {name: str(value) for name, value in (run.arguments.get("hyperparams") or {}).items()}
    same = (run.arguments["n_timesteps"], same) == (int(steps), wanted)
    if same and run.finished == (state == "finished"):
        print(run.folder)
        break
else:
    sys.exit(1)
PYTHON
}

# train NAME: into OUT/NAME, unless it is there and finished.
train() {
    local lines resume=()
    if run_of finished "$1" >/dev/null; then
        return
    fi
    mapfile -t lines < <(hyperparams "$1")
    if run_of unfinished "$1" >/dev/null; then
        resume=(--resume)
    fi
    OMP_NUM_THREADS=1 "$python" -m baseline.train --algo ppo --env "$env" -n "$(steps "$1")" \
        --device "${DEVICE:-cpu}" --save_freq 200000 --folder "$out/$1" "${resume[@]}" \
        --hyperparams "${lines[@]}"
}

# measure NAMES...: exports and measures them, and publishes what one commits and what
# `python -m baseline.report` reads.
measure() {
    local name run agents=()
    for name in "$@"; do
        run="$(run_of finished "$name")"
        agents+=("$run")
        "$python" -m baseline.deploy "$run" --out "$out/files/$name"
    done
    "$python" -m baseline.deploy_benchmark "${agents[@]}" \
        --formats onnx,tflite,torchscript,native --memory_turns 9 "${arm[@]}" --out "$out/results"
    mkdir -p baseline/results/deployment
    cp -r "$out/results/." baseline/results/deployment/
}

# ARM's builds of the runtimes play the files as well, under an emulator, where its packages are.
# The emulated Python has no compiler: native files are compiled by this machine's, if it has one.
arm=()
if "$out/aarch64/python" -c "import numpy, onnxruntime" 2>/dev/null || baseline/aarch64_setup.sh "$out/aarch64"; then
    compiler=aarch64-linux-gnu-gcc
    if command -v $compiler >/dev/null; then compiler="env CC=$compiler "; else compiler=; fi
    arm=(--aarch64_python "$compiler$(printf %q "$out/aarch64/python")")
fi

train 64
train 256
run_of finished 4096 >/dev/null || measure 64 256
train 4096
measure 64 256 4096
