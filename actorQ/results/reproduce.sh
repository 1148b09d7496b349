#!/usr/bin/env bash
# Makes the results in this folder again: the experiments of actorQ/experiments on two cores.
#
#   actorQ/results/reproduce.sh [EXPERIMENT ...]      (default: all of them; two or three days)
#
# Can be interrupted: the same command goes on. Logs are in logs/experiments; results and reports are
# copied to actorQ/results/EXPERIMENT. Nothing else should run on the machine meanwhile.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=.venv/bin/python

failed=0

attempt() { # attempt MODULE ARGUMENTS...
  local code=0
  "$python" -m "$@" || code=$?
  if [[ $code -ge 128 ]]; then exit "$code"; fi  # Interrupted.
  if [[ $code -ne 0 ]]; then failed=1; fi         # The others are made all the same.
}

run() { # run EXPERIMENT FLAGS...
  attempt actorQ.experiments.run "$1" --publish="actorQ/results/$1" "${@:2}"
}

[[ $# -gt 0 ]] || set -- time_to_reward time_to_reward_six breakdown breakdown_torch throughput \
  throughput_4096 staleness final_reward final_reward_2048 communication learner_precision learner_bound \
  four_precisions bfloat16_learner wider_noise time_to_reward_4096 walker_stand_peers \
  tasks tasks_pong
for experiment in "$@"; do
  case "$experiment" in
    time_to_reward)
      run time_to_reward --precisions=32,8 \
        --tasks=cartpole_balance,walker_stand,CartPole-v0,MountainCar-v0,Acrobot-v1
      run time_to_reward --tasks=CartPole-v0 --precisions=32,8 --seeds=3,4,5 --peers=none
      run time_to_reward --tasks=MountainCar-v0,Acrobot-v1 --precisions=4 --peers=none
      ;;
    time_to_reward_six)
      attempt actorQ.experiments.run time_to_reward --precisions=32,8 --seeds=0 --peers=none \
        --tasks=reacher_hard,humanoid_stand,humanoid_walk,cheetah_run,finger_spin,hopper_stand \
        --publish=actorQ/results/time_to_reward_six
      ;;
    throughput)
      run throughput
      attempt actorQ.experiments.cluster --rates=actorQ/results/throughput \
        --out=actorQ/results/cluster
      ;;
    four_precisions)  # In a folder of its own: all of them in turn, one after another.
      attempt actorQ.experiments.run time_to_reward --tasks=CartPole-v0 --precisions=32,16,8,4 \
        --peers=none --out=logs/experiments/four_precisions \
        --publish=actorQ/results/four_precisions
      ;;
    *) run "$experiment" ;;
  esac
done
exit "$failed"
