"""Exports an agent to a self-contained file for a small device, and copies its player beside it.

    python -m baseline.deploy logs/zoo/ppo/CartPole-v1_1 [--bits 8] [--format onnx] [--out FOLDER]

AGENT is Stable-Baselines3's zip in the zoo's layout or its folder, or an ActorQ run or checkpoint.
A zip elsewhere needs --algo and --env where its name and place do not tell them.
The file takes raw observations, normalizes them itself, and gives actions. The player beside it,
`run_policy.py`, needs numpy and the file's runtime alone; that of --format native, `run_native.py`,
needs numpy and a C compiler. The file's actions are compared with the agent's in states that the
agent visits.
"""

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
        "bits", 8, "Bits of the weights. onnx and native: 32, 16, 8, 4; tflite: 32, 8 to 2; "
        "torchscript: 32, 8.",
    )
    flags.DEFINE_enum(
        "format", names.FORMATS[0], list(names.FORMATS),
        "Format of the file, and so its runtime: ONNX Runtime, TFLite, torch, or C that the device "
        "compiles (native).",
    )
    flags.DEFINE_string(
        "out", None, "Folder for the file and its player (default: logs/deploy/ALGO_ENV)."
    )
    export_flags.define(chooses=True)
    flags.DEFINE_boolean("check", True, "Play the file; tell how far it acts as the agent does.")


def main(argv: list[str]) -> int:
    """Exports; see `cli.run` for errors."""
    values = flags.FLAGS
    if len(argv) != 2:
        raise errors.UserError(
            "takes one argument, an agent's zip or folder, such as logs/zoo/ppo/CartPole-v1_1."
        )
    chooses = values.scheme == export_flags.AUTO
    scheme = names.scheme(values.format, values.bits, None if chooses else values.scheme)
    cli.quiet_tensorflow()
    with lean_imports.without("tensorboard"):  # SB3 would load TensorFlow with it.
        from baseline.agents import finding
        from baseline.deploy import deploying
        from baseline.deploy import exporting

    finding.set_threads()
    settings = exporting.Settings(
        values.format, values.bits, scheme, names.granularity(values.format, values.granularity),
        values.calibration_episodes, values.seed,
    )
    agent = exporting.load(argv[1], values.algo, values.env)
    if chooses:
        asked = bool(values["granularity"].present)
        settings = deploying.choose(
            agent, settings, (values.granularity,) if asked else quantization_names.GRANULARITIES
        )
    named = [f"--{name}={values[name].value}" for name in ("algo", "env") if values[name].value]
    deploying.deploy(agent, shlex.join([argv[1], *named]), settings, values.out, values.check)
    return 0


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(export_flags)  # For --help.
    cli.run(main, takes_arguments=True, name=_NAME)
