#!/usr/bin/env bash
# Makes a Python for 64-bit ARM that runs on this machine under an emulator, with the runtimes that
# play exported policies. `python -m baseline.deploy_benchmark --aarch64_python` takes it.
#
#   baseline/aarch64_setup.sh [FOLDER]         (default: logs/aarch64)
#
# It takes 0.9 GB and a minute or two, installs nothing outside FOLDER, and needs no root. Packages
# come from the machine's own Debian mirror (Debian 12, whose Python is 3.11) and from its Python
# package index. FOLDER/python is the command.
set -euo pipefail

fail() { # Prints a line on stderr and ends the script.
  echo "$0: $1" >&2
  exit 1
}

mkdir -p "${1:-logs/aarch64}"
folder=$(cd "${1:-logs/aarch64}" && pwd)
rm -f "$folder/python" # It comes back once everything works.
root=$folder/root
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for tool in apt-get dpkg dpkg-deb; do
  command -v "$tool" >/dev/null || fail "needs $tool, which Debian has."
done
[ -x .venv/bin/python ] || fail "needs .venv: run ./setup_ubuntu.sh first."

# 1. Make an apt that knows ARM and an empty system, so that it fetches every dependency.
apt=$folder/apt host=$(dpkg --print-architecture)
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$root"
: >"$apt/status"
cat >"$apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; "$host"; };
APT::Install-Recommends "false";
APT::Sandbox::User "";
Dir::State::Lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
END
export APT_CONFIG=$apt/apt.conf
apt-get -qq update || fail "the apt sources of this machine have no packages for arm64."
apt-get -qq -y --download-only install python3.11 libpython3.11-stdlib libstdc++6 >/dev/null ||
  fail "the apt sources of this machine have no python3.11 for arm64 (Debian 12 has)."
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb --extract "$package" "$root"
done

# 2. Find or fetch the emulator, a static binary for this machine.
emulator=$(command -v qemu-aarch64-static || true)
if [ -z "$emulator" ]; then
  (cd "$apt" && apt-get -qq download "qemu-user-static:$host") ||
    fail "the apt sources of this machine have no qemu-user-static."
  dpkg-deb --extract "$apt"/qemu-user-static_*.deb "$folder/qemu"
  emulator=$folder/qemu/usr/bin/qemu-aarch64-static
fi
unset APT_CONFIG

# 3. Install what a device would: numpy and the runtimes, as wheels for ARM. This version of torch
# has a build for ARM on PyPI that is not CUDA's, and a fifth of its size.
install() { # install FOLDER PACKAGES_AND_OPTIONS...
  local platforms=() each
  for each in manylinux2014 manylinux_2_17 manylinux_2_27 manylinux_2_28; do
    platforms+=(--platform "${each}_aarch64")
  done
  rm -rf "${folder:?}/$1"
  .venv/bin/python -m pip --disable-pip-version-check install --quiet --quiet --no-warn-conflicts \
    --target "$folder/$1" "${platforms[@]}" --python-version 3.11 --only-binary=:all: "${@:2}"
}
pin() { # Prints the pinned version of a package, as PACKAGE==VERSION.
  grep -m 1 "^$1==" requirements.txt
}
install runtimes "$(pin numpy)" "$(pin onnxruntime)" ai-edge-litert==2.3.0
install torch --no-deps torch==2.5.1 filelock jinja2 markupsafe networkx==3.4.2 fsspec sympy \
  mpmath typing-extensions
rm -rf "$apt"

# 4. Describe the processor, a Raspberry Pi 3's. Libraries read its description from files, for which
# the emulator looks in the root first; this machine's files would make them crash.
mkdir -p "$root/proc" "$root/sys/devices/system/cpu"
printf '%s\t: %s\n' processor 0 BogoMIPS 38.40 Features "fp asimd evtstrm crc32 cpuid" \
  "CPU implementer" 0x41 "CPU architecture" 8 "CPU variant" 0x0 "CPU part" 0xd03 \
  "CPU revision" 4 >"$root/proc/cpuinfo"
for name in possible present online; do
  echo 0 >"$root/sys/devices/system/cpu/$name"
done
# 5. Write the command, which gets its name once it works.
cat >"$folder/python.tmp" <<END
#!/bin/sh
PYTHONPATH='$folder/runtimes:$folder/torch' exec '$emulator' -cpu cortex-a53 -L '$root' '$root/usr/bin/python3.11' "\$@"
END
chmod +x "$folder/python.tmp"
machine=$("$folder/python.tmp" -c "import numpy, platform; print(platform.machine())") ||
  fail "the emulated Python does not start."
[ "$machine" = aarch64 ] || fail "the emulated Python says that it runs on $machine."
mv "$folder/python.tmp" "$folder/python"
printf 'Ready: --aarch64_python=%q\n' "$folder/python"
