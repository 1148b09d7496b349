"""The integer forms of an agent of `baseline.qat`: their agreement, return, size and latency.

    python -m baseline.qat_integer --algo a2c --env CartPole-v1 --folder logs/qat/8 [--out F.json]

Writes `policy.tflite` (2 to 8 bits) and `policy.onnx` (8 bits) beside the agent, which compute with
the integers and ranges of the training (see `tflite_model` and `integer`), and plays them next to
the fake-quantized policy. Of wider integers only the packed size is told. Latency is that of one
observation on one thread, the forms taking turns. Exit code 1: a form acts otherwise than the agent
in more than 1 % of the visited states.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import sys
from typing import TYPE_CHECKING

from absl import flags
from absl import logging
import numpy as np

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import lean_imports
from actorQ.core import output
from actorQ.core import provenance
from baseline.agents import optional_tensorflow
from baseline.quantization import names

if TYPE_CHECKING:
    from baseline.agents import agent as agent_lib
    from baseline.agents import agreement as agreements

_NAME = "qat_integer"
TORCH, ONNX, TFLITE = "fake-quantized, torch", "integers, ONNX Runtime", "integers, TFLite"
ROUNDS = 7  # Of latencies.


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("algo", None, "Algorithm: a2c, ppo, dqn, ddpg.", required=True)
    flags.DEFINE_string("env", None, "Environment, as in the agent's file name.", required=True)
    flags.DEFINE_string("folder", "logs/qat/8", "Folder of agents: FOLDER/ALGO/ENV_<n>/ENV.zip.")
    flags.DEFINE_integer("episodes", 10, "Episodes of every form, >= 1.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Seed of the environments, >= 0.", lower_bound=0)
    flags.DEFINE_integer("states", 5000, "States to compare at most, >= 1.", lower_bound=1)
    flags.DEFINE_string("out", None, "File that gets all figures, .json.")


@dataclasses.dataclass
class Form:
    """What a form comes to.

    Attributes:
      seconds: for one observation, a figure for every round.
      returns: of the episodes.
      agreement: with the fake-quantized form; None for that itself.
      file_bytes: of the model; None for torch.
    """

    seconds: list[float]
    returns: list[float]
    agreement: "agreements.Agreement | None" = None
    file_bytes: int | None = None

    def __str__(self) -> str:
        text = (
            f"return {np.mean(self.returns):9.2f}, {1e6 * np.median(self.seconds):7.1f} us"
        )
        if self.agreement is None:
            return text
        return f"{text}, {self.file_bytes} bytes, alike in {self.agreement}"


@dataclasses.dataclass
class Measured:
    """What an agent's forms come to.

    Attributes:
      forms: by name; the fake-quantized one first.
      packed_bytes: of the parameters.
      states: how many were compared.
    """

    forms: dict[str, Form]
    packed_bytes: int
    states: int

    @property
    def failing(self) -> list[str]:
        """Names of the forms that act otherwise than the agent too often."""
        return [
            name for name, form in self.forms.items()
            if form.agreement is not None and not form.agreement.holds
        ]

    def __str__(self) -> str:
        return "\n".join([
            *(f"{name:24} {form}" for name, form in self.forms.items()),
            f"{self.states} visited states; parameters, packed: {self.packed_bytes} bytes.",
        ])


def measure(
    agent: "agent_lib.Agent", episodes: int = 10, seed: int = 0, states: int = 5000
) -> Measured:
    """Writes an agent's integer forms beside it, and measures all forms.

    Args:
      agent: that `baseline.qat` trained with 2 to 8 bits.
      episodes: of each form; the starts are the same.
      seed: of the starts.
      states: at most so many are compared.

    Raises:
      errors.UserError: the agent has no such form, or a file cannot be written.
    """
    from actorQ.core import timing
    from baseline.agents import evaluation
    from baseline.deploy import exporting
    from baseline.qat import export

    contents = {}
    if _widths(agent) == {export.INTEGER_BITS}:
        contents[ONNX] = export.export(agent).SerializeToString()
        _write(agent, export.ONNX_FILENAME, contents[ONNX])
    try:
        contents[TFLITE] = export.export_tflite(agent)
    except optional_tensorflow.MissingError as error:
        if not contents:
            raise
        logging.warning("Only the ONNX file is written and measured: %s", error)
    else:
        _write(agent, export.TFLITE_FILENAME, contents[TFLITE])
    runners = {}
    for name, content in contents.items():
        with exporting.playing(content, "onnx" if name == ONNX else "tflite") as player:
            runners[name] = exporting.one_by_one(player)
    visited = export.visited_states(agent, episodes, seed, states)
    agreement = {
        name: export.compare(agent, visited, runner) for name, runner in runners.items()
    }
    forms = {TORCH: agent.act} | {
        name: lambda observations, runner=runner: runner(agent.normalize(observations))
        for name, runner in runners.items()
    }
    with contextlib.closing(agent.make_env()) as environment:
        observation, _ = environment.reset(seed=seed)
    batch = np.asarray(observation)[None]
    calls = {name: lambda act=act: act(batch) for name, act in forms.items()}
    seconds = timing.latencies(calls, ROUNDS)
    measured = {}
    for name, act in forms.items():
        played = evaluation.evaluate(agent.make_env, act, episodes, seed)
        measured[name] = Form(
            seconds[name],
            [episode.episode_return for episode in played],
            agreement.get(name),
            len(contents[name]) if name in contents else None,
        )
    return Measured(measured, export.num_bytes(agent), len(visited))


def record(agent: "agent_lib.Agent", measured: Measured | None, settings: dict) -> dict:
    """Returns all figures, for JSON.

    Args:
      agent: that was measured.
      measured: None if there is no integer form of its width.
      settings: of the measurement.
    """
    from baseline.qat import export

    forms = {}
    for name, form in measured.forms.items() if measured is not None else ():
        forms[name] = dataclasses.asdict(form)
        if form.agreement is not None:
            forms[name]["agreement"] = {**form.agreement._asdict(), "holds": form.agreement.holds}
    return {
        **provenance.facts(" ".join([f"python -m baseline.{_NAME}", *sys.argv[1:]])),
        "settings": settings,
        "agent": str(agent.path),
        "algo": agent.algo,
        "env": agent.env_id,
        "bits": agent.quantization[0].width,
        "packed_bytes": export.num_bytes(agent),
        "forms": forms,
    }


def _widths(agent: "agent_lib.Agent") -> set[int]:
    """Returns the bits of an agent's weights and of what goes into and out of its layers."""
    scheme, ranges = agent.quantization
    return {scheme.width, *(bits for _, _, *own in ranges.values() for bits in own)}


def _write(agent: "agent_lib.Agent", filename: str, content: bytes) -> None:
    files.write(agent.path.parent / agent.path.stem / filename, content)


def main(argv: list[str]) -> int:
    """Measures and prints; see `cli.run` for errors."""
    del argv
    cli.quiet_tensorflow()
    values = flags.FLAGS
    if values.out:
        output.make_folder(os.path.dirname(values.out) or ".")  # Better now than after measuring.
    with lean_imports.without("tensorboard"):  # Which SB3 would load TensorFlow for.
        from actorQ.core import timing

        timing.pin(1)  # Before the frameworks start their threads.
        from baseline.agents import finding
        from baseline.qat import export

    finding.set_threads()
    agent = finding.load(names.canonical_algo(values.algo), values.env, values.folder)
    path = export.write_packed(agent)
    print(f"Packed: {path}, {os.path.getsize(path)} bytes")
    measured = None
    if max(_widths(agent)) > export.TFLITE_BITS:
        print(f"Parameters, packed: {export.num_bytes(agent)} bytes")
    else:
        measured = measure(agent, values.episodes, values.seed, values.states)
        print(measured)
    if values.out:
        settings = {
            "episodes": values.episodes, "seed": values.seed, "states": values.states,
            "rounds": ROUNDS,
        }
        text = json.dumps(record(agent, measured, settings), indent=1) + "\n"
        files.write(pathlib.Path(values.out), text.encode())
    if measured is not None and measured.failing:
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
