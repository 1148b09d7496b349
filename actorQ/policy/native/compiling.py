"""Compiles the kernels into a shared library with a C compiler (gcc or clang; $CC chooses).

The library lies beside the sources. Its name is a digest of their contents, so that changed sources
never meet an old library. Imports no framework.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile

from actorQ.core import errors

FOLDER = os.path.dirname(os.path.abspath(__file__))
BUILD_FOLDER = os.path.join(FOLDER, "_build")
_SOURCES = ("kernels.c", "policy.c", "convert.c")
_HEADERS = ("kernels.h", "vectors.h")
# Compilers must not fuse or reorder float operations: results must equal the numpy reference.
_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-ffp-contract=off", "-fvisibility=default", "-Wno-psabi")
_Sets = Mapping[str, tuple[str, ...]]
# The instruction sets by processor, and the features that each one uses. kernels.c is compiled once
# for each set with these features, and policy.c tests the same features before it takes a set's
# kernels.
_X86: _Sets = {
    "portable": (),
    "avx2": ("avx2", "fma", "f16c"),
    "avxvnni": ("avx2", "fma", "f16c", "avxvnni"),
    "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "fma", "f16c"),
}
_ARM: _Sets = {"portable": (), "neon": (), "dotprod": ("dotprod",), "i8mm": ("dotprod", "i8mm")}
_FEATURES = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}
_OTHERS: _Sets = {"portable": ()}  # Processors without kernels of their own.
_MORE_FLAGS = {"avx512": ("-mprefer-vector-width=512",), "portable": ("-DPORTABLE",)}
# Compilers before gcc 11 and clang 12 lack the one, and those before gcc 10 and clang 11 the other.
_OPTIONAL = ("avxvnni", "i8mm")


def library_path() -> str:
    """Returns the path of the library of the present sources, which may not exist yet."""
    digest = hashlib.sha256()
    for name in (*_SOURCES, *_HEADERS, os.path.basename(__file__)):
        with open(os.path.join(FOLDER, name), "rb") as file:
            digest.update(file.read())
    return os.path.join(
        BUILD_FOLDER, f"libactorq-{platform.machine()}-{digest.hexdigest()[:12]}.so"
    )


def build() -> str:
    """Compiles the library if it is missing, and returns its path.

    Raises:
      errors.UserError: There is no compiler, or it failed.
    """
    path = library_path()
    if not os.path.exists(path):
        compile_library(find_compiler(), platform.machine(), path)
    return path


def compile_library(compiler: Sequence[str], machine: str, path: str) -> None:
    """Compiles the library.

    Args:
      compiler: Command of the compiler, which may be one for another machine.
      machine: The machine that the library is for, as `platform.machine` names it.
      path: File to write; its folder is made if missing.

    Raises:
      errors.UserError: The compiler failed.
    """
    sets = _FEATURES.get(machine, _OTHERS)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        objects = []
        defines = []
        for name, features in sets.items():
            flags = _feature_flags(machine, features)
            if name in _OPTIONAL and not _knows(compiler, name, flags, folder):
                continue
            objects.append(os.path.join(folder, f"{name}.o"))
            run(
                *compiler, *_FLAGS, *flags, *_MORE_FLAGS.get(name, ()), f"-DKERNELS=actorq_{name}",
                "-c", os.path.join(FOLDER, "kernels.c"), "-o", objects[-1],
            )
            tests = " && ".join(f"HAS_{feature}" for feature in features) or "1"
            defines.append(f"-DCAN_RUN_{name}={tests}")
        library = os.path.join(folder, "library.so")
        run(
            *compiler, *_FLAGS, *defines, "-shared", os.path.join(FOLDER, "policy.c"),
            os.path.join(FOLDER, "convert.c"), *objects, "-lm", "-o", library,
        )
        os.replace(library, path)  # In one step, so that no process loads half a library.


def _feature_flags(machine: str, features: Sequence[str]) -> list[str]:
    """Returns the compiler's flags for the features of an instruction set."""
    if _FEATURES.get(machine) is _ARM:
        return [f"-march=armv8.2-a+{'+'.join(features)}"] if features else []
    return [f"-m{feature}" for feature in features]


def find_compiler() -> list[str]:
    """Returns the words of $CC, or the first compiler that exists.

    Raises:
      errors.UserError: There is none.
    """
    chosen = os.environ.get("CC", "")
    try:
        words = shlex.split(chosen)
    except ValueError as error:
        raise errors.UserError(f"CC={chosen} is not a command: {error}.") from None
    if words:
        if not shutil.which(words[0]):
            raise errors.UserError(
                f"CC={chosen}: there is no program {words[0]}. Name a C compiler, or unset CC."
            )
        return words
    for name in ("gcc", "clang", "cc"):
        if shutil.which(name):
            return [name]
    raise errors.UserError(
        "No C compiler found for the native kernels: sudo apt-get install gcc libc6-dev (or set "
        "CC), then run ./setup_ubuntu.sh again. Trainings need --inference_mode=pytorch without "
        "them."
    )


def _knows(compiler: Sequence[str], name: str, flags: Sequence[str], folder: str) -> bool:
    """Returns whether a compiler can compile for an instruction set and ask a processor for it."""
    # Some versions of clang compile for AVX-VNNI, but cannot ask whether a processor has it.
    asked = f'__builtin_cpu_supports("{name}")' if _X86.get(name) else "0"
    source = os.path.join(folder, "probe.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write(f"int main(void) {{ return {asked}; }}\n")
    command = [*compiler, *flags, "-c", source, "-o", os.path.join(folder, "probe.o")]
    return subprocess.run(command, capture_output=True).returncode == 0


def run(*command: str) -> None:
    """Runs a compiler.

    Raises:
      errors.UserError: It failed.
    """
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise errors.UserError(
            f"The native kernels do not compile with {command[0]}: "
            f"{errors.summary(RuntimeError(done.stderr))}"
        )
