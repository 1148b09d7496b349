"""Sentences of the README that hold results."""

from collections.abc import Sequence

from baseline.formats import names as formats
from baseline.quantization import recipes
from docs.generators import prose
from docs.generators.policies import deployment_results
from docs.generators.policies import method_results
from docs.generators.policies import qat_results
from docs.generators.policies import quantized_results
from docs.generators.training import fault_results
from docs.generators.training import gpu
from docs.generators.training import tasks
from docs.generators.training import time_to_reward
from docs.generators.training import time_to_reward_six


@prose.wrapped
def gain() -> str:
    """Returns what int8 actors gain, by the lowest and the highest of the rows' medians."""
    rows = time_to_reward.headline()
    others = time_to_reward_six.gains()
    gains = sorted([*(row.speedup for row in rows), *others])
    tasks = len({row.task for row in rows}) + len(others)
    return (
        f"On two CPU cores, int8 actors held the paper's rewards **{gains[0]:.1f} to"
        f" {gains[-1]:.1f} times as soon** as fp32 actors on {tasks} tasks."
    )


@prose.wrapped
def results() -> str:
    """Returns one line for each further result: tasks, PTQ, QAT, deployment, faults, GPU."""
    means = ", ".join(
        f"{algo.upper()} {method_results.percent(quantized_results.mean_errors(algo)['weights'])}"
        for algo in quantized_results.ALGORITHMS
    )
    counts = qat_results.counts()
    usual = ", ".join(f"{row.fp32_us:.1f}" for row in deployment_results.of_runtime())
    own = deployment_results.of_runtime(formats.RUNTIMES["native"])
    native = ", ".join(f"{row.int8_us:.1f}" for row in own)
    survived, planned = fault_results.survived()
    fp32, int8 = gpu.run("fp32"), gpu.run("int8")
    return "\n".join([
        tasks.readme(),
        f"- [int8 after training](docs/results/ptq.md) costs {means} of the reward. With"
        " [`--method auto`](docs/results/ptq-methods.md) it costs"
        f" {_losses(('dqn', 'ddpg'), recipes.AUTO, '8')}. Three bits by `--method distill` cost"
        f" {_losses(quantized_results.ALGORITHMS, recipes.DISTILL, '3')}.",
        "- [Quantization-aware training](docs/results/qat.md) kept up with PTQ in"
        f" {counts.at_least} of {counts.cells} cells.",
        f"- [As small files](docs/results/deployment.md) the three policies act in"
        f" {native} µs in int8. ONNX Runtime takes {usual} µs in fp32.",
        f"- [Faults](docs/results/faults.md): a training survived {survived} of {planned} rounds"
        " of killed and stopped processes.",
        f"- [With a GPU learner](docs/results/gpu.md) int8 actors made"
        f" {int8.actor_rate / fp32.actor_rate:.1f} times the steps, and the learner was the slow"
        " part.",
    ])


def _losses(algos: Sequence[str], method: str, bits: str) -> str:
    """Returns each algorithm's loss by a method, with a scale for each tensor."""
    return ", ".join(f"{algo.upper()} {method_results.loss(algo, method, bits)}" for algo in algos)


BLOCKS = {"gain": gain, "results": results}
