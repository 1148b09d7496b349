"""Exports an agent to a self-contained file for a small device, and what plays it there.

    python -m baseline.deploy logs/zoo/ppo/CartPole-v1_1 [--bits 8] [--format onnx] [--out FOLDER]

AGENT is Stable-Baselines3's zip in the zoo's layout or its folder, or an ActorQ run or checkpoint.
The file takes raw observations (normalization is in it) and gives actions; `run_policy.py` beside
it needs numpy and the file's runtime alone. Its actions are compared with the agent's in states
that the agent visits.
"""

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import lean_imports
from baseline.formats import names as deploy_formats
from baseline.quantization import names
from baseline.study import measuring_flags

_NAME = "deploy"
DEFAULT_OUT = "logs/deploy"


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer(
        "bits", 8, "Of the weights. onnx: 32, 16, 8, 4; tflite: 32, 8 to 2; torchscript: 32, 8."
    )
    flags.DEFINE_enum(
        "format", deploy_formats.FORMATS[0], list(deploy_formats.FORMATS),
        "Of the file, and so the runtime: ONNX Runtime, TFLite or torch.",
    )
    flags.DEFINE_string(
        "out", None, f"Folder for the file and its runner (else {DEFAULT_OUT}/ALGO_ENV)."
    )
    define_export_flags()
    flags.DEFINE_boolean("check", True, "Play the file; tell how far it acts as the agent does.")


def define_export_flags() -> None:
    """Defines the flags that `deploy_benchmark` has, too."""
    flags.DEFINE_enum(
        "scheme", None, list(names.SCHEMES),
        "What is quantized; weights: activations get their ranges from every call "
        "(else weights+activations, and weights for torchscript).",
    )
    measuring_flags.define_granularity_of_linear()
    measuring_flags.define_calibration()
    flags.DEFINE_integer("seed", 0, "Seed of the environments, >= 0.", lower_bound=0)


def main(argv: list[str]) -> int:
    """Exports; see `cli.run` for errors."""
    values = flags.FLAGS
    if len(argv) != 2:
        raise errors.UserError(
            "takes one argument, an agent's zip or folder, such as logs/zoo/ppo/CartPole-v1_1."
        )
    scheme = deploy_formats.scheme(values.format, values.bits, values.scheme)
    cli.quiet_tensorflow()
    with lean_imports.without("tensorboard"):  # Which SB3 would load TensorFlow for.
        from baseline.agents import finding
        from baseline.agents import zoo_files
        from baseline.deploy import exporting

    finding.set_threads()
    agent = exporting.load(argv[1])
    settings = exporting.Settings(
        values.format, values.bits, scheme, values.granularity, values.calibration_episodes,
        values.seed,
    )
    content = exporting.export(agent, settings)
    name = f"{agent.algo}_{zoo_files.file_name(agent.env_id)}"
    path = exporting.write(content, values.format, values.out or f"{DEFAULT_OUT}/{name}")
    print(f"{path}: {agent.algo} {agent.env_id}, {values.bits} bits, {len(content)} bytes")
    if values.check:
        found = exporting.check(agent, content, settings)
        print(f"Acts as {agent.path} in {found.states} visited states: {found}")
    print(f"To play it: python {path.parent / exporting.RUNNER} {path} [OBSERVATIONS.npy]")
    return 0


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(measuring_flags)  # For --help.
    cli.run(main, takes_arguments=True, name=_NAME)
