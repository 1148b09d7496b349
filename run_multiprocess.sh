#!/usr/bin/env bash
# Trains with ActorQ on this machine: learner, parameter broadcaster and actors, from one command.
#
#   ./run_multiprocess.sh [LOGDIR TASK MODEL NUM_EPISODES N_ACTORS BATCH SAMPLES_PER_INSERT
#                          QUANTIZE QUANTIZE_COMMUNICATION ACTOR_UPDATE_PERIOD WEIGHT_COMPRESS]
#                         [--flag=value ...]
#
# Every argument is optional; --help lists the flags. The work is done by actorQ/launcher.py.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="$root/.venv/bin/python"
# The set-up notes its options first, and stamps .venv last. A .venv that somebody else made has
# neither; it serves where this project is installed in it.
if [[ ! -x "$python" ]] || { [[ ! -e "$root/.venv/quarl-stamp" ]] && {
  [[ -e "$root/.venv/quarl-options" ]] ||
    ! "$python" -c 'import importlib.metadata as m; m.version("quarl")' 2>/dev/null; }; }; then
  echo "run_multiprocess.sh: error: $root/.venv is missing or not complete: run $root/setup_ubuntu.sh (again)." >&2
  exit 1
fi
exec "$python" -m actorQ.launcher "$@"
