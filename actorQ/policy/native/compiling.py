"""Compiles the kernels into a shared library with a C compiler (gcc or clang; $CC chooses).

The library lies beside the sources. Its name is a digest of their contents, so that changed sources
never meet an old library. Imports no framework.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile

from actorQ.core import errors

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_SOURCES = ("kernels.c", "policy.c", "convert.c")
_HEADERS = ("kernels.h", "vectors.h")
# Compilers must not fuse or reorder float operations: results must equal the numpy reference.
_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-ffp-contract=off", "-fvisibility=default", "-Wno-psabi")
# The instruction sets and the features that each one uses. kernels.c is compiled once for each
# set with these features, and policy.c tests the same features before it takes a set's kernels.
_FEATURES = {
    "portable": (),
    "avx2": ("avx2", "fma", "f16c"),
    "avxvnni": ("avx2", "fma", "f16c", "avxvnni"),
    "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "fma", "f16c"),
}
_MORE_FLAGS = {"avx512": ("-mprefer-vector-width=512",)}
_OPTIONAL = "avxvnni"  # Compilers before gcc 11 and clang 12 lack it.


def library_path() -> str:
    """Returns the path of the library of the present sources, which may not exist yet."""
    digest = hashlib.sha256()
    for name in (*_SOURCES, *_HEADERS, os.path.basename(__file__)):
        with open(os.path.join(_FOLDER, name), "rb") as file:
            digest.update(file.read())
    return os.path.join(
        _FOLDER, "_build", f"libactorq-{platform.machine()}-{digest.hexdigest()[:12]}.so"
    )


def build() -> str:
    """Compiles the library if it is missing, and returns its path.

    Raises:
      errors.UserError: There is no compiler, or it failed.
    """
    path = library_path()
    if os.path.exists(path):
        return path
    compiler = find_compiler()
    x86 = platform.machine() in ("x86_64", "AMD64")
    variants = dict(_FEATURES) if x86 else {"portable": ()}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        if x86 and not _knows_avxvnni(compiler, folder):
            del variants[_OPTIONAL]
        objects = []
        defines = []
        for variant, features in variants.items():
            objects.append(os.path.join(folder, f"{variant}.o"))
            run(
                *compiler, *_FLAGS, *(f"-m{feature}" for feature in features),
                *_MORE_FLAGS.get(variant, ()), f"-DKERNELS=actorq_{variant}",
                "-c", os.path.join(_FOLDER, "kernels.c"), "-o", objects[-1],
            )
            tests = " && ".join(f"HAS_{feature}" for feature in features) or "1"
            defines.append(f"-DCAN_RUN_{variant}={tests}")
        library = os.path.join(folder, "library.so")
        run(
            *compiler, *_FLAGS, *defines, "-shared", os.path.join(_FOLDER, "policy.c"),
            os.path.join(_FOLDER, "convert.c"), *objects, "-lm", "-o", library,
        )
        os.replace(library, path)  # In one step, so that no process loads half a library.
    return path


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


def _knows_avxvnni(compiler: list[str], folder: str) -> bool:
    # Some versions of clang compile for it, but cannot ask whether a processor has it.
    source = os.path.join(folder, "probe.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write('int main(void) { return __builtin_cpu_supports("avxvnni"); }\n')
    command = [*compiler, "-mavxvnni", "-c", source, "-o", os.path.join(folder, "probe.o")]
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
