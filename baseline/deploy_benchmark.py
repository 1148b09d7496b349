"""The paper's table of the deployment case study: fp32 against integers, on one core.

    python -m baseline.deploy_benchmark AGENT [AGENT ...] [--formats onnx,tflite] [--out FOLDER]

Each AGENT as `baseline.deploy` takes it, but in full precision. Of its fp32 and its quantized file:
latency of one observation (one thread, pinned to one core, the files taking turns), success rate
(or return) over paired episodes, size, resident memory beyond the runtime's, speed-up; beside them
the paper's.
"""

import shlex

from absl import flags
from absl import logging

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import lean_imports
from baseline.deploy import __main__ as deploy
from baseline.deploy import aarch64
from baseline.deploy import resident_memory
from baseline.formats import names as deploy_formats
from baseline.study import measuring_flags

_NAME = "deploy_benchmark"


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_list(
        "formats", [deploy_formats.FORMATS[0]],
        f"Of the files: {', '.join(deploy_formats.FORMATS)}; comma separated.",
    )
    flags.DEFINE_integer(
        "bits", 8, "Of the weights of the quantized files. onnx: 16, 8, 4; tflite: 8 to 2; "
        "torchscript: 8.",
    )
    deploy.define_export_flags()
    flags.DEFINE_integer("episodes", 1000, "Of the agent and of every file, >= 1.", lower_bound=1)
    flags.DEFINE_integer("states", 2000, "States to compare at most, >= 1.", lower_bound=1)
    flags.DEFINE_integer("repeats", 7, "Rounds of latencies, >= 1.", lower_bound=1)
    flags.DEFINE_integer(
        "memory_turns", 3, "Processes of every file whose memory is measured, >= 0 (0: none).",
        lower_bound=0,
    )
    flags.DEFINE_string(
        "aarch64_python", "",
        "Command of a Python for 64-bit ARM (emulated; baseline/aarch64_setup.sh makes one) with "
        "numpy and the runtimes, that plays the files, too; empty: none.",
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
    unknown = [name for name in values.formats if name not in deploy_formats.FORMATS]
    if unknown or not values.formats:
        raise errors.UserError(
            f"--formats={','.join(values.formats)}: known are {', '.join(deploy_formats.FORMATS)}."
        )
    formats = tuple(dict.fromkeys(values.formats))
    for file_format in formats:
        deploy_formats.scheme(file_format, values.bits, values.scheme)
    if values.bits == 32:
        raise errors.UserError("--bits=32 is what the quantized files are compared with.")
    arm = _arm(values.aarch64_python)
    cli.quiet_tensorflow()
    with lean_imports.without("tensorboard"):  # Which SB3 would load TensorFlow for.
        from actorQ.core import output
        from actorQ.core import timing

        timing.pin(1)  # Before the frameworks start their threads.
        from baseline.agents import finding
        from baseline.deploy import exporting
        from baseline.deploy import measuring
        from baseline.deploy import tables

    finding.set_threads()
    settings = measuring.Settings(
        formats, values.bits, values.scheme, values.granularity, values.calibration_episodes,
        values.episodes, values.seed, values.states, values.repeats,
        _memory_turns(values.memory_turns), arm,
    )
    # All of them are there, and can be measured, before the first is.
    loaded = [exporting.load(path) for path in argv[1:]]
    for agent in loaded:
        measuring.check(agent)
    if values.out:
        output.make_folder(values.out)
    found = []
    for agent in loaded:  # What is measured is kept, whatever becomes of the next one.
        found.append((agent, measuring.measure(agent, settings)))
        tables.report(found, settings, values.out)
    return 0


def _memory_turns(asked: int) -> int:
    """Returns what is asked for, or 0 where memory cannot be measured, which is said."""
    if asked and not resident_memory.can_measure():
        logging.warning("Memory is not measured: only Linux tells what a policy takes of it.")
        return 0
    return asked


def _arm(command: str) -> aarch64.Python | None:
    """Returns what --aarch64_python names.

    Raises:
      errors.UserError: it is no such Python.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise errors.UserError(f"--aarch64_python={command}: {error}.") from None
    return aarch64.probe(words) if words else None


if __name__ == "__main__":
    define_flags()
    for module in (deploy, measuring_flags):
        flags.adopt_module_key_flags(module)  # For --help.
    cli.run(main, takes_arguments=True, name=_NAME)
