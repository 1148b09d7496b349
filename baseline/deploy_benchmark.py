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

from actorQ import cli
from actorQ import errors
from actorQ import lean_imports
from baseline import aarch64
from baseline import deploy
from baseline import deploy_formats
from baseline import measuring_flags
from baseline import resident_memory

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
        from actorQ.benchmarks import common
        from actorQ.scripts import output

        common.pin(1)  # Before the frameworks start their threads.
        from baseline import agents
        from baseline import deploy_measuring
        from baseline import deploy_table
        from baseline import deploying

    agents.set_threads()
    settings = deploy_measuring.Settings(
        formats, values.bits, values.scheme, values.granularity, values.calibration_episodes,
        values.episodes, values.seed, values.states, values.repeats,
        _memory_turns(values.memory_turns), arm,
    )
    # All of them are there, and can be measured, before the first is.
    loaded = [deploying.load(path) for path in argv[1:]]
    for agent in loaded:
        deploy_measuring.check(agent)
    if values.out:
        output.make_folder(values.out)
    found = []
    for agent in loaded:  # What is measured is kept, whatever becomes of the next one.
        found.append((agent, deploy_measuring.measure(agent, settings)))
        deploy_table.report(found, settings, values.out)
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
