#!/usr/bin/env bash
# Makes .venv with the pinned packages and this project in it. See --help.
set -euo pipefail
# pip answers Ctrl-C by failing, which must not start the next attempt.
trap 'exit 130' INT
trap 'exit 143' TERM
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
  cat <<'END'
Usage: ./setup_ubuntu.sh [--gpu|--cpu] [--torch cpu|cuda]

Makes .venv with the pinned packages (4.3 GB, two to five minutes) and this project, then checks
that they import together. A second call with nothing changed only checks. Options that .venv was
made with stay until others are given. The script needs no sudo and asks no questions.

  --gpu                  TensorFlow for NVIDIA GPUs (the learner) in place of tensorflow-cpu.
                         torch stays the CPU build: actors act on the CPU.
  --cpu                  tensorflow-cpu (default); it also undoes --gpu.
  --torch cpu|cuda       cpu (default) asks for torch's CPU build first; cuda takes the build
                         that the package index has, on PyPI the CUDA one (gigabytes).
  --print-requirements   Prints what would be installed here, and stops.
  --help                 This text.

PYTHON=/path/to/python3.11 chooses the Python that a new .venv is made from.
On macOS and on Linux for ARM only baseline/ is set up: dm-reverb, which ActorQ needs, exists for
Linux on x86-64 only.
END
}

fail() { # Ends with lines on stderr. Use: fail STATUS LINE...
  printf '%s\n' "${@:2}" >&2
  exit "$1"
}

stamp=.venv/quarl-stamp options=.venv/quarl-options
noted() { # Prints an option that .venv was made with, or was to be. Use: noted OPTION DEFAULT.
  local value
  value=$(sed -n "s/^$1=//p" "$options" 2>/dev/null) || true
  if [ -z "$value" ]; then # An older version has made .venv, without the file $options.
    value=$(sed -n "1s/.* $1=\([a-z]*\) .*/\1/p" "$stamp" 2>/dev/null) || true
  fi
  echo "${value:-$2}"
}

system=${UNAME:-$(uname -s)} tensorflow=$(noted tensorflow cpu) torch=$(noted torch cpu) print_only=no
while [ $# -gt 0 ]; do
  case $1 in
    --gpu) tensorflow=gpu ;;
    --cpu) tensorflow=cpu ;;
    --torch=*) torch=${1#*=} ;;
    --torch) torch=${2:-}; if [ $# -gt 1 ]; then shift; fi ;;
    --print-requirements) print_only=yes ;;
    --help | -h) usage; exit ;;
    *) fail 2 "$0: unknown option $1; --help lists them." ;;
  esac
  shift
done
case $torch in cpu | cuda) ;; *) fail 2 "$0: --torch is cpu or cuda, not '$torch'." ;; esac
case $system/${MACHINE:-$(uname -m)}/$tensorflow in
  Linux/x86_64/*) parts=all ;;
  Linux/aarch64/cpu | Darwin/*/cpu) parts=baseline ;;
  *) fail 2 "$0: Linux on x86-64 serves (on Windows: WSL 2). Without --gpu, Linux on aarch64 and macOS" \
    "serve for baseline/." ;;
esac

# Without this, pip could not write a path that is not ASCII where the locale is C.
if [ "$system" = Linux ]; then export LC_ALL=C.UTF-8; fi
# Packages elsewhere must not count as installed.
unset PYTHONPATH PYTHONHOME

# Settings of pip that would put packages elsewhere, or leave some out. Its indexes stay in force.
astray="user target prefix root python require-virtualenv
  dry-run no-deps require-hashes no-binary only-binary"
for name in $astray; do
  unset "PIP_$(sed 'y/abcdefghijklmnopqrstuvwxyz-/ABCDEFGHIJKLMNOPQRSTUVWXYZ_/' <<<"$name")"
done
site_packages=.venv/lib/python3.11/site-packages
pip=(.venv/bin/python -m pip --disable-pip-version-check)
# Some machines set PYTHONDONTWRITEBYTECODE; an install without bytecode costs every process
# seconds at start.
pip_install=("${pip[@]}" install --compile)
# --quiet twice: pip warns once for each package about each index that lacks it.
[ -t 1 ] || pip_install+=(--quiet --quiet)
# Unlike --constraint, this also holds where pip builds a package apart (dm-acme has no wheel).
export PIP_CONSTRAINT=constraints.txt

requirements() { # Prints the lines of requirements.txt for this system and these options.
  local drop='^#' name=tensorflow-cpu
  if [ "$parts" = baseline ]; then drop='sys_platform == "linux"'; fi
  if [ "$tensorflow" = gpu ]; then name='tensorflow[and-cuda]'; fi
  local exactly='=='
  if [ "$torch" = cuda ]; then exactly='==='; fi # "==" would also take an index's CPU build.
  grep -v -e '^#' -e '^$' -e "$drop" requirements.txt |
    sed -e "s/^tensorflow-cpu==/$name==/" -e "s/^torch==/torch$exactly/"
}

fingerprint() { # Prints whatever .venv depends on; a .venv that moved does not match either.
  echo "system=$system tensorflow=$tensorflow torch=$torch folder=$PWD"
  cat requirements.txt constraints.txt pyproject.toml | cksum
  .venv/bin/python --version 2>&1 || true
}

is_python_311() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; }

find_python() { # Prints a Python 3.11 that can make environments.
  local python without_venv=''
  local candidates=(python3.11 python3 python "${HOME:-}"/.pyenv/versions/3.11*/bin/python)
  if command -v uv >/dev/null; then candidates+=("$(uv python find 3.11 2>/dev/null || true)"); fi
  if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
  for python in "${candidates[@]}"; do
    is_python_311 "$python" || continue
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then echo "$python"; return; fi
    without_venv=$python
  done
  if [ -n "$without_venv" ]; then
    fail 1 "$without_venv cannot make environments: sudo apt-get install python3.11-venv"
  fi
  fail 1 "No Python 3.11 found${PYTHON:+ at PYTHON=$PYTHON}. It is the one version that every pin serves. Get it by any of" \
    "  sudo apt-get install python3.11 python3.11-venv   (Debian 12; Ubuntu: ppa:deadsnakes/ppa)" \
    "  pyenv install 3.11" \
    "  uv python install 3.11" \
    "  conda create --prefix ~/python3.11 python=3.11   (then PYTHON=~/python3.11/bin/python $0)"
}

make_environment() {
  # The programs in .venv (pip, ray, tensorboard) name the folder that they were installed in.
  if is_python_311 .venv/bin/python && "${pip[@]}" --version >/dev/null 2>&1 &&
    { [ -L .venv ] || [ ! -e .venv/bin/pip ] || grep -qF "$(pwd -P)/.venv/" .venv/bin/pip; }; then
    # pip writes a package's RECORD last; a package without one was interrupted.
    find "$site_packages" -maxdepth 1 \( -name '~*' -o -name '*.dist-info' \
      ! -exec test -e '{}/RECORD' \; \) -exec rm -rf '{}' +
    return
  fi
  local python
  python=$(find_python)
  echo "Making .venv with $("$python" --version) ($python)."
  "$python" -m venv --clear .venv
}

keep_pip_here() { # Empties those settings by a file that goes before those that have them.
  local file=.venv/pip.conf
  case ${PIP_CONFIG_FILE:-} in
    /dev/null) return ;; # pip reads no file at all.
    ?*) file=.venv/quarl-pip.conf ;; # The user's file would go before .venv/pip.conf.
  esac
  .venv/bin/python -S -c '
import configparser, os, sys

file, *names = sys.argv[1:]
settings = configparser.RawConfigParser()
settings.read([os.environ.get("PIP_CONFIG_FILE") or file])
for section in ("global", "install"):
    if not settings.has_section(section):
        settings.add_section(section)
    for name in names:
        settings.set(section, name, "")
with open(file, "w") as opened:
    settings.write(opened)
' "$file" $astray
  if [ -n "${PIP_CONFIG_FILE:-}" ]; then export PIP_CONFIG_FILE=$PWD/$file; fi
}

keep_path_ascii() { # Python 3.11 reads .pth files as the locale says, and ends where it cannot.
  .venv/bin/python -S -c '
import glob, os, sys

root = os.getcwdb()
for path in [] if root.isascii() else glob.glob(sys.argv[1] + "/__editable__.quarl-*.pth"):
    with open(path, "w") as file:
        file.write(f"import os, sys; sys.path.append(os.fsdecode({root!r}))\n")
' "$site_packages"
}

install_cpu_torch() { # Installs torch, from pytorch.org only where no other index has it.
  local pin problem
  pin=$(requirements | grep '^torch==')
  "${pip_install[@]}" --no-deps "$pin+cpu" 2>/dev/null && return
  { problem=$("${pip_install[@]}" --no-deps --retries 1 --timeout 15 \
    --extra-index-url https://download.pytorch.org/whl/cpu "$pin+cpu" 2>&1 >&3); } 3>&1 && return
  problem=$(sed -n 's/^ERROR: *//p' <<<"$problem")
  echo "pip has no CPU build of $pin${problem:+ (${problem##*$'\n'})}: taking the package index's build."
}

install_packages() {
  local other=tensorflow
  if [ "$tensorflow" = gpu ]; then other=tensorflow-cpu; fi
  rm -f "$stamp"
  printf '%s\n' "tensorflow=$tensorflow" "torch=$torch" >"$options"
  keep_pip_here
  # The two variants share their files, so the other one must be gone first.
  "${pip[@]}" uninstall --yes --quiet "$other" 2>/dev/null
  if [ "$torch" = cpu ] && [ "$system" = Linux ]; then
    install_cpu_torch
  elif compgen -G "$site_packages/torch-*+cpu.dist-info" >/dev/null; then
    "${pip[@]}" uninstall --yes --quiet torch # It would satisfy the pin.
  fi
  echo "Installing $(requirements | grep -c .) pinned packages and what they need."
  requirements >.venv/requirements.txt
  "${pip_install[@]}" --requirement .venv/requirements.txt
  # TensorFlow's and torch's packages of NCCL hold a file of the same name: the newer serves both.
  local nccl
  nccl=$(compgen -G "$site_packages/nvidia_nccl_cu13-*.dist-info" || true)
  if [ "$tensorflow" = gpu ] && [ -n "$nccl" ]; then
    nccl=${nccl##*/nvidia_nccl_cu13-}
    "${pip_install[@]}" --force-reinstall --no-deps "nvidia-nccl-cu13==${nccl%.dist-info}"
  fi
  "${pip_install[@]}" --no-deps --no-build-isolation --editable .
  fingerprint >"$stamp"
}

check_imports() { # Imports all in one process, as the learner does. MuJoCo gets no window.
  MUJOCO_GL=disabled TF_CPP_MIN_LOG_LEVEL=3 .venv/bin/python -W ignore - "$parts" <<'END'
import sys
from ctypes.util import find_library
from importlib.metadata import version

names = ["torch", "gymnasium", "stable-baselines3"]
import torch
if sys.argv[1] == "all":
    from actorQ.learner import acme_compat
    import acme.agents.tf.d4pg, reverb, tensorflow as tf
    from dm_control import suite
    with_cuda = tf.sysconfig.get_build_info()["is_cuda_build"]
    names = ["tensorflow" if with_cuda else "tensorflow-cpu", "dm-reverb", "dm-acme", "torch", "dm-control"]
    if with_cuda and not tf.config.list_physical_devices("GPU"):
        print("Hint: TensorFlow sees no GPU here; the learner will run on the CPU.")
    if not (find_library("EGL") or find_library("OSMesa")):
        print("Hint: to render MuJoCo without a display: sudo apt-get install libegl1 libgl1-mesa-dri")
else:
    import gymnasium, stable_baselines3
print("Imports work:", ", ".join(f"{name} {version(name)}" for name in names))
END
}

build_kernels() { # Builds the native kernels, which trainings take unless a flag says otherwise.
  if ! .venv/bin/python -m actorQ.policy.native.build; then
    echo "Hint: going on without the native kernels; trainings then need --inference_mode=pytorch."
  elif [ "$parts" = all ]; then
    .venv/bin/python -c "from actorQ.wire import loopback; loopback.build()"
  fi
}

if [ "$print_only" = yes ]; then requirements; exit; fi
next=("./run_multiprocess.sh" ".venv/bin/python -m pytest -n 2 --dist worksteal")
if [ "$parts" = baseline ]; then
  echo "Setting up baseline/ only: dm-reverb, which ActorQ needs, exists for Linux on x86-64 only."
  if [ "$system" = Linux ]; then
    echo "Box2D's and PyBullet's tasks are left out: they have no built packages for Linux on ARM."
  fi
  next=(".venv/bin/python -m baseline.ptq --help")
fi
if [ "$(cat "$stamp" 2>/dev/null)" = "$(fingerprint)" ]; then
  echo "The environment in .venv is up to date."
else
  make_environment
  install_packages
fi
keep_path_ascii
build_kernels
check_imports || fail 1 "The packages in .venv do not work together (see above). Remove it and set up again: rm -rf .venv"
printf '%s\n' "Ready after $SECONDS s. Next:" "${next[@]/#/  }"
