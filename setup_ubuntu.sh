#!/usr/bin/env bash
# Makes .venv with the pinned packages and this project in it. See --help.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

stamp=.venv/quarl-stamp
pip=(.venv/bin/python -m pip --disable-pip-version-check)
# Some machines set PYTHONDONTWRITEBYTECODE, and an install without bytecode costs every
# process seconds at start.
pip_install=("${pip[@]}" install --compile --constraint constraints.txt)
[ -t 1 ] || pip_install+=(--quiet --quiet)

usage() {
  cat <<'END'
Usage: ./setup_ubuntu.sh [--gpu] [--torch cpu|cuda]

Makes .venv with the pinned packages (4.3 GB, about three minutes) and this project, then checks
that they import together. Again with nothing changed: only the check. No sudo, no questions.

  --gpu                  TensorFlow for NVIDIA GPUs (the learner) in place of tensorflow-cpu.
                         torch stays the CPU build: actors act on the CPU.
  --torch cpu|cuda       cpu (default) asks for torch's CPU build first; cuda takes the build
                         that the package index has, on PyPI the CUDA one (gigabytes).
  --print-requirements   Print what would be installed here, and stop.
  --help                 This text.

Set PYTHON=/path/to/python3.11 to choose the Python that a new .venv is made from.
On macOS only baseline/ is set up: dm-reverb, which ActorQ needs, exists for Linux only.
END
}

fail() { # Says why on stderr and ends: fail STATUS LINE...
  local status=$1
  shift
  printf '%s\n' "$@" >&2
  exit "$status"
}

# The lines of requirements.txt that this system and these options ask for.
requirements() {
  local drop='^$' tensorflow_name=tensorflow-cpu
  if [ "$system" = Darwin ]; then drop='sys_platform == "linux"'; fi
  if [ "$tensorflow" = gpu ]; then tensorflow_name='tensorflow[and-cuda]'; fi
  grep -v -e '^#' -e '^$' -e "$drop" requirements.txt | sed "s/^tensorflow-cpu==/$tensorflow_name==/"
}

is_python_311() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; }

# Prints a Python 3.11 that can make an environment.
find_python() {
  local candidate without_venv=''
  local candidates=(python3.11 python3 python "$HOME"/.pyenv/versions/3.11*/bin/python)
  if command -v uv >/dev/null; then
    candidates+=("$(uv python find --no-python-downloads 3.11 2>/dev/null || true)")
  fi
  if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
  for candidate in "${candidates[@]}"; do
    is_python_311 "$candidate" || continue
    if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
      echo "$candidate"
      return
    fi
    without_venv=$candidate
  done
  if [ -n "$without_venv" ]; then
    fail 1 "$without_venv cannot make environments: sudo apt-get install python3.11-venv"
  fi
  fail 1 "No Python 3.11 found${PYTHON:+ at PYTHON=$PYTHON}, the one version that every pin serves (dm-reverb: at most" \
    "3.11, scipy: at least 3.11). Any of these brings it; then run this again:" \
    "  sudo apt-get install python3.11 python3.11-venv   (Debian 12; Ubuntu: from ppa:deadsnakes/ppa)" \
    "  pyenv install 3.11" \
    "  uv python install 3.11" \
    "  conda create -n py311 python=3.11, then PYTHON=\"\$(conda run -n py311 which python)\" $0"
}

# What the environment depends on. One that was moved or interrupted does not match either.
fingerprint() {
  echo "system=$system tensorflow=$tensorflow torch=$torch folder=$PWD"
  cat requirements.txt constraints.txt pyproject.toml | cksum
  .venv/bin/python --version 2>&1 || true
}

make_environment() {
  if is_python_311 .venv/bin/python && "${pip[@]}" --version >/dev/null 2>&1; then
    # pip writes a package's RECORD last. Without one, its install was interrupted.
    find .venv/lib/python3.11/site-packages -maxdepth 1 \
      \( -name '*.dist-info' ! -exec test -e '{}/RECORD' \; -o -name '~*' \) -exec rm -rf '{}' +
    return
  fi
  local python
  python=$(find_python)
  echo "Making .venv with $("$python" --version) ($python)."
  "$python" -m venv --clear .venv
}

install_torch() {
  local pin
  pin=$(requirements | grep '^torch==')
  if [ "$torch" = cuda ] || [ "$system" = Darwin ]; then
    # A CPU build already here would satisfy the pin.
    if "${pip[@]}" freeze | grep -q '^torch==.*+cpu'; then "${pip[@]}" uninstall --yes --quiet torch; fi
    return # With all the other packages.
  fi
  "${pip_install[@]}" --no-deps "$pin+cpu" 2>/dev/null && return
  "${pip_install[@]}" --no-deps --retries 1 --timeout 15 \
    --extra-index-url https://download.pytorch.org/whl/cpu "$pin+cpu" 2>/dev/null && return
  echo "No CPU build of $pin found, here or at download.pytorch.org: taking the index's own build."
}

install_packages() {
  local other_tensorflow=tensorflow
  if [ "$tensorflow" = gpu ]; then other_tensorflow=tensorflow-cpu; fi
  rm -f "$stamp"
  # The two variants share their files, so the other one must be gone first.
  "${pip[@]}" uninstall --yes --quiet "$other_tensorflow" 2>/dev/null
  install_torch
  echo "Installing $(requirements | wc -l | tr -d ' ') pinned packages and what they need."
  requirements >.venv/requirements.txt
  "${pip_install[@]}" --requirement .venv/requirements.txt
  "${pip_install[@]}" --no-deps --no-build-isolation --editable .
  fingerprint >"$stamp"
}

# One process that imports everything, as the learner does; its lines are for the user.
check_imports() {
  MUJOCO_GL=disabled TF_CPP_MIN_LOG_LEVEL=3 .venv/bin/python -W ignore - "$system" <<'END'
import ctypes.util
import importlib.metadata
import sys

names = ["torch", "stable-baselines3", "gymnasium"]
import torch
if sys.argv[1] == "Darwin":
    import gymnasium
    import stable_baselines3
else:
    from actorQ import acme_compat
    import acme.agents.tf.d4pg
    import reverb
    import tensorflow as tf
    from dm_control import suite
    tensorflow = "tensorflow" if tf.sysconfig.get_build_info()["is_cuda_build"] else "tensorflow-cpu"
    names = [tensorflow, "dm-reverb", "dm-acme", "torch", "dm-control"]
    gpus = len(tf.config.list_physical_devices("GPU"))
    if not any(map(ctypes.util.find_library, ("EGL", "OSMesa"))):
        print("Hint: to render MuJoCo without a display: sudo apt-get install libegl1 libosmesa6")
    if tensorflow == "tensorflow" and not gpus:
        print("Hint: TensorFlow sees no GPU here; the learner will run on the CPU.")
print("Imports work:", ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names))
END
}

system=${UNAME:-$(uname -s)} tensorflow=cpu torch=cpu print_only=''
while [ $# -gt 0 ]; do
  case $1 in
    --gpu) tensorflow=gpu ;;
    --torch) torch=${2:-}; if [ $# -gt 1 ]; then shift; fi ;;
    --torch=*) torch=${1#*=} ;;
    --print-requirements) print_only=yes ;;
    --help | -h) usage; exit ;;
    *) fail 2 "$0: unknown option $1; --help lists them." ;;
  esac
  shift
done
case $torch in cpu | cuda) ;; *) fail 2 "$0: --torch is cpu or cuda, not '$torch'." ;; esac
case $system in
  Linux) if [ "$(uname -m)" != x86_64 ]; then fail 1 "dm-reverb exists for x86-64 only, not $(uname -m)."; fi ;;
  Darwin) if [ "$tensorflow" = gpu ]; then fail 2 "$0: --gpu needs Linux."; fi ;;
  *) fail 1 "$system is not supported: use Linux (on Windows: WSL 2), or macOS for baseline/ alone." ;;
esac
if [ -n "$print_only" ]; then requirements; exit; fi

if [ "$system" = Darwin ]; then echo "macOS: setting up baseline/ only (dm-reverb exists for Linux only)."; fi
if [ "$(cat "$stamp" 2>/dev/null)" = "$(fingerprint)" ]; then
  echo "The environment in .venv is up to date."
else
  make_environment
  install_packages
fi
check_imports
echo "Ready after $SECONDS s. Next: ${next_run-}.venv/bin/python -m pytest"
