#!/usr/bin/env bash
# Measures policies in C on emulated Cortex-M processors: docs/results/microcontrollers.md.
#
# Usage: [ROBOTS=FOLDER] [AGENTS=FOLDER] [CMSIS_NN=FOLDER] baseline/results/reproduce_cortex_m.sh
#   ROBOTS    Folder of the navigation policies that reproduce_deployment.sh trains (default:
#             logs/deployment). A policy that is not there is trained for a short time.
#   AGENTS    Folder of zoo agents (default: logs/zoo; `baseline.ptq --hub` fetches them).
#   CMSIS_NN  Folder of CMSIS-NN's sources; without it, its kernel is not counted.
# TensorFlow Lite Micro's interpreter is compared where it is installed (tests/requirements.txt).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=.venv/bin/python
agents=${AGENTS:-logs/zoo}
out=logs/cortex_m
robots=()
for layers in 64,64,64 256,256,256 4096,512,1024; do
  folder=${ROBOTS:-logs/deployment}/${layers%%,*}
  if [ ! -d "$folder/ppo/DroneNavigation-v0_1" ]; then
    folder=$out/agents/${layers//,/-}
  fi
  if [ ! -d "$folder" ]; then
    "$python" -m baseline.train --algo ppo --env DroneNavigation-v0 --folder "$folder" \
      -n "${STEPS:-40000}" \
      --hyperparams "policy_kwargs:dict(net_arch=dict(pi=[$layers],vf=[256,256]))"
  fi
  robots+=("$folder/ppo/DroneNavigation-v0_1")
done
"$python" -m baseline.cortex_benchmark "${robots[@]:0:2}" \
  "$agents/ppo/CartPole-v1_1" "$agents/dqn/LunarLander-v2_1" "$agents/ddpg/Pendulum-v1_1" \
  "$agents/a2c/BipedalWalker-v3_1" "${robots[2]}" --out "$out" ${CMSIS_NN:+--cmsis_nn "$CMSIS_NN"}
# The command in the files names the folders of this machine otherwise.
sed -i "s|$agents|AGENTS|g${CMSIS_NN:+; s|$CMSIS_NN|CMSIS_NN|g}" "$out"/cortex_m.{md,json}
