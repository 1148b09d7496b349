"""The integer form of an agent of `baseline.qat`: its agreement, return, size and latency.

    python -m baseline.qat_integer --algo a2c --env CartPole-v1 --folder logs/qat/8

8 bits: writes `policy.onnx` beside the agent, which computes with the integers and ranges of the
training (see `integer`), and plays it next to the fake-quantized policy. Other widths have no
engine that computes with them: only their packed size is told. Latency is that of one observation
on one thread, the forms taking turns.
"""

import dataclasses
import os

from absl import flags
import numpy as np

from actorQ import cli
from actorQ import errors
from actorQ import lean_imports
from baseline import results

MODEL_FILENAME = "policy.onnx"
ROUNDS = 7  # Of latencies.


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("algo", None, "Algorithm: a2c, ppo, dqn, ddpg.", required=True)
    flags.DEFINE_string("env", None, "Environment, as in the agent's file name.", required=True)
    flags.DEFINE_string("folder", "logs/qat/8", "Folder of agents: FOLDER/ALGO/ENV_<n>/ENV.zip.")
    flags.DEFINE_integer("episodes", 10, "Episodes of every form, >= 1.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Seed of the environments, >= 0.", lower_bound=0)


@dataclasses.dataclass(frozen=True)
class Measured:
    """What the forms come to.

    Attributes:
      agreement: of the integer form with the fake-quantized one, as text.
      holds: whether it is enough.
      returns: mean return, by form.
      seconds: for one observation, by form.
      packed_bytes: of the parameters.
      file_bytes: of the integer model.
    """

    agreement: str
    holds: bool
    returns: dict[str, float]
    seconds: dict[str, float]
    packed_bytes: int
    file_bytes: int

    def __str__(self) -> str:
        return "\n".join([
            f"Alike: {self.agreement} of the visited states.",
            *(
                f"{form:24} return {self.returns[form]:9.2f}, {1e6 * self.seconds[form]:7.1f} us"
                for form in self.returns
            ),
            f"Parameters: {self.packed_bytes} bytes; {MODEL_FILENAME}: {self.file_bytes} bytes.",
        ])


def measure(agent, episodes: int, seed: int) -> Measured:
    """Exports an 8-bit agent, and measures both forms.

    Args:
      agent: an `agents.Agent` that `baseline.qat` trained with 8 bits.
      episodes: of each form; the starts are the same.
      seed: of the starts.

    Raises:
      errors.UserError: see `qat_export.export`.
    """
    from actorQ.benchmarks import common
    from baseline import evaluation
    from baseline import integer_runner
    from baseline import qat_export

    content = qat_export.export(agent).SerializeToString()
    path = agent.path.parent / agent.path.stem / MODEL_FILENAME
    try:
        path.write_bytes(content)
    except OSError as error:
        raise errors.UserError(f"Cannot write {path}: {error.strerror}.") from None
    runner = integer_runner.Runner(content)
    forms = {
        "fake-quantized, torch": agent.act,
        "integers, ONNX Runtime": lambda observations: runner(agent.normalize(observations)),
    }
    observation, _ = agent.make_env().reset(seed=seed)
    batch = np.asarray(observation)[None]
    laps = {
        name: lambda act=act: common.seconds_per_call(lambda: act(batch))
        for name, act in forms.items()
    }
    agreement = qat_export.compare(agent, episodes, seed)
    return Measured(
        str(agreement),
        agreement.holds,
        {
            name: float(np.mean([
                episode.episode_return
                for episode in evaluation.evaluate(agent.make_env, act, episodes, seed)
            ]))
            for name, act in forms.items()
        },
        common.medians(common.interleave(laps, ROUNDS)),
        qat_export.num_bytes(agent),
        len(content),
    )


def main(argv: list[str]) -> int:
    """Measures and prints; see `cli.run` for errors."""
    del argv
    cli.quiet_tensorflow()
    values = flags.FLAGS
    with lean_imports.without("tensorboard"):  # Which SB3 would load TensorFlow for.
        from actorQ.benchmarks import common

        common.pin(1)  # Before the frameworks start their threads.
        from baseline import agents
        from baseline import qat_export

    agents.set_threads()
    agent = agents.load(results.canonical_algo(values.algo), values.env, values.folder)
    path = qat_export.write_packed(agent)
    print(f"Packed: {path}, {os.path.getsize(path)} bytes")
    if agent.quantization[0].width != qat_export.INTEGER_BITS:
        print(f"Parameters: {qat_export.num_bytes(agent)} bytes")
        return 0
    print(measure(agent, values.episodes, values.seed))
    return 0


if __name__ == "__main__":
    define_flags()
    cli.run(main, name="qat_integer")
