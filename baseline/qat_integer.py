"""Measures the integer forms of an agent of `baseline.qat`: agreement, return, size and latency.

    python -m baseline.qat_integer --algo a2c --env CartPole-v1 --folder logs/qat/8 [--out F.json]

It writes `policy.tflite` (2 to 8 bits) and `policy.onnx` (8 bits) beside the agent, which compute
with the integers and ranges of the training, and plays them next to the fake-quantized policy. For
wider integers it tells the packed size alone. Latency is that of one observation on one thread,
the forms in turns. Exit code 1: a form acts otherwise than the agent in more than 1 % of the
visited states.
"""

import json
import os
import pathlib
import shlex
import sys

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import lean_imports
from actorQ.core import output
from actorQ.core import provenance
from baseline.quantization import names

_NAME = "qat_integer"


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("algo", None, "Algorithm: a2c, ppo, dqn, ddpg, td3, sac.", required=True)
    flags.DEFINE_string("env", None, "Environment, as in the agent's file name.", required=True)
    flags.DEFINE_string("folder", "logs/qat/8", "Folder of agents: FOLDER/ALGO/ENV_<n>/ENV.zip.")
    flags.DEFINE_integer("episodes", 10, "Episodes of every form, >= 1.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Seed of the environments, >= 0.", lower_bound=0)
    flags.DEFINE_integer("states", 5000, "States to compare at most, >= 1.", lower_bound=1)
    flags.DEFINE_string("out", None, "File that gets all figures, .json.")


def main(argv: list[str]) -> int:
    """Measures and prints; see `cli.run` for errors."""
    del argv
    cli.quiet_tensorflow()
    values = flags.FLAGS
    if values.out:
        output.make_folder(os.path.dirname(values.out) or ".")  # It fails before measuring.
    with lean_imports.without("tensorboard"):  # SB3 would load TensorFlow with it.
        from actorQ.core import timing

        timing.pin(1)  # Before the frameworks start their threads.
        from baseline.agents import finding
        from baseline.deploy import integer_forms
        from baseline.deploy import integer_tables
        from baseline.deploy import measuring
        from baseline.qat import export

    finding.set_threads()
    agent = finding.load(names.canonical_algo(values.algo), values.env, values.folder)
    path = export.write_packed(agent)
    print(f"Packed: {path}, {os.path.getsize(path)} bytes")
    settings = measuring.Settings(
        episodes=values.episodes, seed=values.seed, states=values.states
    )
    measured = integer_forms.measure_trained(agent, settings)
    print(integer_tables.trained_text(measured))
    if values.out:
        record = {
            **provenance.facts(shlex.join(["python", "-m", f"baseline.{_NAME}", *sys.argv[1:]])),
            **integer_tables.trained_record(agent, settings, measured),
        }
        files.write(pathlib.Path(values.out), json.dumps(record, indent=1) + "\n")
    if measured.failing:
        errors.report(
            _NAME,
            f"{' and '.join(measured.failing)}: not alike in enough of the states that "
            f"{agent.path} visits.",
        )
        return cli.EXIT_ERROR
    return 0


if __name__ == "__main__":
    define_flags()
    cli.run(main, name=_NAME)
