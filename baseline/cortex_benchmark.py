"""Measures an agent's C files on Cortex-M processors: instructions, flash and RAM.

    python -m baseline.cortex_benchmark AGENT [AGENT ...] [--widths 32,8,4] [--out FOLDER]

It takes each AGENT as `baseline.deploy` does, but in full precision. `deploy --format c` writes the
files, arm-none-eabi-gcc compiles them, and qemu-system-arm emulates the processors. qemu counts
instructions, not cycles. Actions are compared with the agent's, with those of the numpy form, and
between the emulated processor and this machine.
"""

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import lean_imports
from baseline.deploy import export_flags
from baseline.deploy import firmware
from baseline.formats import names

_NAME = "cortex_benchmark"
_INTEGERS_ALONE = "8-integers"
_WIDTHS = ("32", "16", "8", "4", _INTEGERS_ALONE)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_list(
        "widths", ["32", "8", "4", _INTEGERS_ALONE],
        f"Bits of the files' weights, comma separated, of {', '.join(_WIDTHS)}. The last has no "
        "floats at all.",
    )
    flags.DEFINE_list(
        "cores", list(firmware.CORES),
        f"Processors, comma separated: {', '.join(firmware.CORES)}.",
    )
    export_flags.define_agent()
    flags.DEFINE_integer("states", 100_000, "States to compare, >= 2.", lower_bound=2)
    flags.DEFINE_integer(
        "episodes", 10_000,
        "Episodes that give the states, at most, >= 1: fewer states are compared after these.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "million_instructions", 2000,
        "Instructions to emulate of each file on each processor, about, in millions, >= 1.",
        lower_bound=1,
    )
    flags.DEFINE_string(
        "cmsis_nn", None, "Folder of CMSIS-NN's sources, whose kernel is counted as well."
    )
    flags.DEFINE_string("out", None, "Folder that gets cortex_m.md, .json, .csv and .png.")


def main(argv: list[str]) -> int:
    """Measures and prints; see `cli.run` for errors."""
    values = flags.FLAGS
    if len(argv) < 2:
        raise errors.UserError(
            "takes agents' zips or folders, such as logs/zoo/ppo/CartPole-v1_1."
        )
    for name, known in (("widths", _WIDTHS), ("cores", tuple(firmware.CORES))):
        asked: list[str] = values[name].value or []
        if not asked or set(asked) - set(known):
            raise errors.UserError(f"--{name}={','.join(asked)}: known are {', '.join(known)}.")
    firmware.check()
    cli.quiet_tensorflow()
    with lean_imports.without("tensorboard"):  # SB3 would load TensorFlow with it.
        from actorQ.core import output
        from actorQ.core import timing

        timing.pin(1)  # Before the frameworks start their threads.
        from baseline.agents import finding
        from baseline.deploy import cmsis_nn
        from baseline.deploy import cortex_files
        from baseline.deploy import cortex_tables
        from baseline.deploy import loading

    finding.set_threads()
    if values.cmsis_nn:
        cmsis_nn.sources(values.cmsis_nn)
    widths = tuple(
        cortex_files.Width(8, names.NONE) if text == _INTEGERS_ALONE
        else cortex_files.Width(int(text))
        for text in dict.fromkeys(values.widths)
    )
    settings = cortex_files.Settings(
        widths, tuple(firmware.CORES[name] for name in dict.fromkeys(values.cores)),
        values.states, values.episodes, 10**6 * values.million_instructions, values.granularity,
        values.calibration_episodes, values.seed, values.cmsis_nn,
    )
    # A wrong path is told before anything is measured.
    loaded = [loading.load(path, values.algo, values.env) for path in argv[1:]]
    if values.out:
        output.make_folder(values.out)
    rows: list[cortex_files.Row] = []
    for agent in loaded:  # Each agent's figures are written, should the next one fail.
        rows.extend(cortex_files.measure(agent, settings))
        cortex_tables.report(rows, settings, values.out)
    return 0


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(export_flags)  # For --help.
    cli.run(main, takes_arguments=True, name=_NAME)
