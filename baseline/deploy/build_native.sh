#!/bin/sh
# This compiles policy_native.c for this very processor, unless that is done already. It prints the
# library's path. CC names another compiler than cc.
#
#     sh build_native.sh [MACHINE]
machine=${1:-$(uname -m)}
cd "$(dirname "$0")" || exit
processor=$(grep -m1 -E '^(flags|Features)' /proc/cpuinfo 2>/dev/null)
key=$(echo "$processor" | cat - policy_native.c "$(basename "$0")" | cksum | cut -d' ' -f1)
library=$PWD/policy_native-$machine-$key.so
compiler=${CC:-cc}
# Compilers must not fuse float operations: integers of activations would round differently.
flags="-std=gnu11 -O3 -ffp-contract=off -fPIC -shared -Wno-psabi"
case $machine in
  *86*) own="-march=native -mprefer-vector-width=512" ;;
  *) own="-mcpu=native" ;;
esac
if [ ! -e "$library" ]; then
  command -v "${compiler%% *}" >/dev/null || {
    echo "there is no C compiler ${compiler%% *}: install gcc, or set CC" >&2
    exit 1
  }
  draft=$library.$$ # It gets its name at the end, so that no process loads half a library.
  # A compiler for another machine does not know this processor.
  $compiler $flags $own policy_native.c -lm -o "$draft" 2>/dev/null ||
    $compiler $flags policy_native.c -lm -o "$draft" || {
      echo "$compiler fails" >&2
      exit 1
    }
  mv "$draft" "$library"
fi
echo "$library"
