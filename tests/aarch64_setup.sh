#!/usr/bin/env bash
# Tries setup_ubuntu.sh and commands of baseline/ on emulated 64-bit ARM, in half an hour or more.
#
# Usage: tests/aarch64_setup.sh [FOLDER]
#   FOLDER   Where Debian 12 for ARM is made (default: logs/aarch64_system; up to 8 GB).
#
# The script needs root, and these packages:
#   apt-get install debootstrap qemu-user-static binfmt-support
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=${1:-logs/aarch64_system}
mkdir -p "$root"
root=$(cd "$root" && pwd)
home=$root/home/user

if [ ! -e "$root/made" ]; then
  debootstrap --arch=arm64 --variant=minbase bookworm "$root"
  echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/emulated" # Waiting for the disk takes minutes.
  chroot "$root" apt-get install -y --no-install-recommends -o APT::Sandbox::User=root \
    ca-certificates git g++ python3.11-dev python3.11-venv
  touch "$root/made"
fi
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"

# Libraries read what the processor is from files, and end where these are of another machine. They
# get a Raspberry Pi 3's.
cpu=$root/sys/devices/system/cpu
mkdir -p "$cpu/cpu0/regs/identification" "$home"
for name in possible present online; do echo 0 >"$cpu/$name"; done
echo 0x00000000410fd034 >"$cpu/cpu0/regs/identification/midr_el1"
printf '%s\t: %s\n' processor 0 BogoMIPS 38.40 Features "fp asimd evtstrm crc32 cpuid" \
  "CPU implementer" 0x41 "CPU architecture" 8 "CPU variant" 0x0 "CPU part" 0xd03 \
  "CPU revision" 4 >"$home/cpuinfo"
trap 'umount -R "$root/proc" "$root/dev" 2>/dev/null || true' EXIT
mount -t proc proc "$root/proc"
mount --bind "$home/cpuinfo" "$root/proc/cpuinfo"
mount --rbind --make-rslave /dev "$root/dev"

[ -d "$home/quarl" ] || git clone --quiet . "$home/quarl"
cat >"$home/try.sh" <<'END'
set -e
cd /home/user/quarl
rm -rf logs # An earlier try's agents would count as others of the same name.
try() {
  echo "== $*"
  "$@"
}
try ./setup_ubuntu.sh
python=.venv/bin/python
try $python -m baseline.train --algo ppo --env CartPole-v1 -n 20000 --folder logs/zoo
try $python -m baseline.ptq ppo CartPole-v1 8 --folder logs/zoo --episodes 2 --out logs/ptq
for format in onnx torchscript native c; do
  try $python -m baseline.deploy logs/zoo/ppo/CartPole-v1_1 --format $format --bits 8 \
    --out logs/$format
done
try $python logs/native/run_native.py logs/native/policy.native
END
chroot "$root" /usr/bin/env -i HOME=/home/user PATH=/usr/bin:/bin LC_ALL=C.UTF-8 \
  QEMU_CPU=cortex-a53 OMP_NUM_THREADS=1 PIP_DEFAULT_TIMEOUT=180 \
  PIP_CERT=/etc/ssl/certs/ca-certificates.crt /bin/bash /home/user/try.sh
