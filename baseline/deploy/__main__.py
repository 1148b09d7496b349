"""Exports an agent to a self-contained file for a small device, and copies its player beside it.

    python -m baseline.deploy logs/zoo/ppo/CartPole-v1_1 [--bits 8] [--format onnx] [--out FOLDER]

AGENT is Stable-Baselines3's zip in the zoo's layout or its folder, or an ActorQ run or checkpoint.
A zip elsewhere needs --algo and --env where its name and place do not tell them.
The file takes raw observations, normalizes them itself, and gives actions. The player beside it,
`run_policy.py`, needs numpy and the file's runtime alone; that of --format native, `run_native.py`,
needs numpy and a C compiler. The file's actions are compared with the agent's in states that the
agent visits.
"""

import dataclasses
import shlex

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import lean_imports
from baseline.deploy import export_flags
from baseline.formats import names
from baseline.quantization import names as quantization_names

_NAME = "deploy"


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer(
        "bits", 8, "Bits of the weights. onnx: 32, 16, 8, 4; native: 32, 16, 8, 4, 3; "
        "tflite: 32, 8 to 2; torchscript: 32, 8; c: 32, 16, 8 to 2.",
    )
    flags.DEFINE_enum(
        "format", names.FORMATS[0], list(names.FORMATS),
        "Format of the file, and so its runtime: ONNX Runtime, TFLite, torch, C that a board "
        "compiles (native), or none (c: a source file in C99).",
    )
    flags.DEFINE_string(
        "out", None, "Folder for the file and its player (default: logs/deploy/ALGO_ENV)."
    )
    export_flags.define(chooses=True)
    flags.DEFINE_enum(
        "float", names.HARD, list(names.FLOATS),
        "c: none writes integers alone, for processors without a floating point unit.",
    )
    flags.DEFINE_string(
        "flash_limit", None, "c: bytes that weights and tables may take, such as 256K or 1M.",
    )
    flags.DEFINE_boolean("check", True, "Play the file; tell how far it acts as the agent does.")


def main(argv: list[str]) -> int:
    """Exports; see `cli.run` for errors."""
    values = flags.FLAGS
    if len(argv) != 2:
        raise errors.UserError(
            "takes one argument, an agent's zip or folder, such as logs/zoo/ppo/CartPole-v1_1."
        )
    chooses = values.scheme == export_flags.AUTO
    for name in ("float", "flash_limit"):
        if values.format != "c" and values[name].present:
            raise errors.UserError(f"--{name} is for --format=c, not for --format={values.format}.")
    scheme = names.scheme(values.format, values.bits, None if chooses else values.scheme)
    if values.format != "tflite" and values["tflite_kernels"].present:
        raise errors.UserError(
            f"--tflite_kernels is for --format=tflite, not for --format={values.format}."
        )
    names.check_kernels(values.format, values.bits, values.tflite_kernels)
    cli.quiet_tensorflow()
    with lean_imports.without("tensorboard"):  # SB3 would load TensorFlow with it.
        from baseline.agents import finding
        from baseline.deploy import c_files
        from baseline.deploy import deploying
        from baseline.deploy import exporting
        from baseline.deploy import loading

    finding.set_threads()
    settings = exporting.Settings(
        values.format, values.bits, scheme, names.granularity(values.format, values.granularity),
        values.calibration_episodes, values.seed,
        c=c_files.Options(
            values.float, values.flash_limit and c_files.parse_bytes(values.flash_limit)
        ),
    )
    agent = loading.load(argv[1], values.algo, values.env)
    settings = dataclasses.replace(
        settings, kernels=deploying.kernels_for(agent, settings, values.tflite_kernels)
    )
    if chooses:
        asked = bool(values["granularity"].present)
        any_kernels = values.tflite_kernels == export_flags.AUTO
        settings = deploying.choose(
            agent, settings, (values.granularity,) if asked else quantization_names.GRANULARITIES,
            names.KERNELS if any_kernels else (values.tflite_kernels,),
        )
    named = [f"--{name}={values[name].value}" for name in ("algo", "env") if values[name].value]
    deploying.deploy(agent, shlex.join([argv[1], *named]), settings, values.out, values.check)
    return 0


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(export_flags)  # For --help.
    cli.run(main, takes_arguments=True, name=_NAME)
