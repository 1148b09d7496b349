"""Makes the paper's table of the deployment case study: fp32 against integers, on one core.

    python -m baseline.deploy_benchmark AGENT [AGENT ...] [--formats onnx,native] [--out FOLDER]

It takes each AGENT as `baseline.deploy` does, but in full precision, and measures of its fp32 and
its quantized file:

- the latency of one observation (one thread, pinned to one core, the files in turns): the median
  and the 99th percentile of single calls, and the cost of a call: the latency of a policy of 8
  units in the same runtime
- the success rate, or the return, over paired episodes
- the size, and the resident memory beyond the runtime's, with and without pages of libraries

The paper's figures stand beside ours.
"""

import shlex

from absl import flags
from absl import logging

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import lean_imports
from baseline.deploy import aarch64
from baseline.deploy import export_flags
from baseline.deploy import memory
from baseline.formats import names

_NAME = "deploy_benchmark"
_FORMATS = tuple(name for name in names.FORMATS if name != "c")  # `cortex_benchmark` has C files.


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_list(
        "formats", [names.FORMATS[0]],
        f"Formats of the files, comma separated: {', '.join(_FORMATS)}.",
    )
    flags.DEFINE_integer(
        "bits", 8, "Bits of the quantized files' weights. onnx: 16, 8, 4; native: 16, 8, 4, 3; "
        "tflite: 8 to 2; torchscript: 8.",
    )
    export_flags.define()
    flags.DEFINE_integer(
        "episodes", 1000, "Episodes of the agent and of every file, >= 1.", lower_bound=1
    )
    flags.DEFINE_integer("states", 2000, "States to compare at most, >= 1.", lower_bound=1)
    flags.DEFINE_integer("repeats", 7, "Rounds of latencies, >= 1.", lower_bound=1)
    flags.DEFINE_integer(
        "memory_turns", 3, "Processes of every file whose memory is measured, >= 0 (0: none).",
        lower_bound=0,
    )
    flags.DEFINE_string(
        "aarch64_python", "",
        "Command of a Python for 64-bit ARM with numpy and the runtimes, which plays the files "
        "as well; empty: none. baseline/aarch64_setup.sh makes an emulated one.",
    )
    flags.DEFINE_string(
        "out", None, "Folder that gets deployment.md, .json, .csv and .png."
    )


def main(argv: list[str]) -> int:
    """Measures and prints; see `cli.run` for errors."""
    values = flags.FLAGS
    if len(argv) < 2:
        raise errors.UserError(
            "takes agents' zips or folders, such as logs/zoo/ppo/CartPole-v1_1."
        )
    unknown = [name for name in values.formats if name not in _FORMATS]
    if unknown or not values.formats:
        raise errors.UserError(
            f"--formats={','.join(values.formats)}: known are {', '.join(_FORMATS)}."
        )
    formats = tuple(dict.fromkeys(values.formats))
    for file_format in formats:
        names.scheme(file_format, values.bits, values.scheme)
        names.check_kernels(file_format, values.bits, values.tflite_kernels)
    if values.bits == 32:
        raise errors.UserError("--bits=32 is what the quantized files are compared with.")
    arm = _arm(values.aarch64_python)
    cli.quiet_tensorflow()
    with lean_imports.without("tensorboard"):  # SB3 would load TensorFlow with it.
        from actorQ.core import output
        from actorQ.core import timing

        timing.pin(1)  # Before the frameworks start their threads.
        from baseline.agents import finding
        from baseline.deploy import device_files
        from baseline.deploy import device_tables
        from baseline.deploy import loading

    finding.set_threads()
    settings = device_files.Settings(
        values.granularity, values.calibration_episodes, values.episodes, values.seed,
        values.states, values.repeats, formats, values.bits, values.scheme,
        _memory_turns(values.memory_turns), arm,
        values.tflite_kernels,
    )
    # A wrong path is told before anything is measured.
    loaded = [loading.load(path, values.algo, values.env) for path in argv[1:]]
    for agent in loaded:
        device_files.check(agent)
    if values.out:
        output.make_folder(values.out)
    found = []
    for agent in loaded:  # Each agent's figures are written, should the next one fail.
        found.append((agent, device_files.measure(agent, settings)))
        device_tables.report(found, settings, values.out)
    return 0


def _memory_turns(asked: int) -> int:
    """Returns --memory_turns; warns and returns 0 where memory cannot be measured."""
    if asked and not memory.can_measure():
        logging.warning("Memory is not measured: only Linux tells how much a policy takes.")
        return 0
    return asked


def _arm(command: str) -> aarch64.Python | None:
    """Returns the Python that --aarch64_python names."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise errors.UserError(f"--aarch64_python={command}: {error}.") from None
    return aarch64.probe(words) if words else None


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(export_flags)  # For --help.
    cli.run(main, takes_arguments=True, name=_NAME)
