"""Access to the raw figures of the benchmarks under `actorQ/results/benchmarks`."""

from collections.abc import Mapping
from collections.abc import Sequence
import functools
import statistics
from typing import Any

from docs.generators import tables

FOLDER = tables.ACTORQ_RESULTS / "benchmarks"
Record = Mapping[str, Any]


@functools.cache
def load(name: str) -> dict[str, Any]:
    """Returns a JSON file of a benchmark.

    Args:
        name: Path within the benchmarks' folder, without its ending.
    """
    found: dict[str, Any] = tables.read_json(FOLDER / f"{name}.json")
    return found


def actors(folder: str = "") -> list[Record]:
    """Returns the actors that `actor_loop` measured.

    Args:
        folder: Folder of another machine or task within the benchmarks' folder.
    """
    found: list[Record] = load(f"{folder}/actor_loop" if folder else "actor_loop")["actors"]
    return found


def actor(
    task: str, width: int, loop: str, bits: int, environments: int = 1, folder: str = ""
) -> Record:
    """Returns one actor that `actor_loop` measured.

    Args:
        task: Task as 'suite,task'.
        width: Units of each of the three hidden layers.
        loop: "original", "original with pulls", "native" or "pytorch".
        bits: Precision of inference.
        environments: Number of environments in the actor.
        folder: Folder of another machine or task within the benchmarks' folder.
    """
    wanted = {
        "task": task, "width": width, "loop": loop, "bits": bits, "environments": environments
    }
    (found,) = [
        one for one in actors(folder) if all(one[key] == value for key, value in wanted.items())
    ]
    return found


def times(side: Record, reference: Record) -> float:
    """Returns how many steps a side of the learner's benchmark makes for one of a reference."""
    return statistics.median(
        before / after for before, after in zip(reference["seconds"], side["seconds"], strict=True)
    )


def run_rate(run: Record, name: str) -> float:
    """Returns the median of a rate of a run that `end_to_end` measured."""
    return statistics.median(found[name] for found in run["rates"])


def rate(one: Record) -> float:
    """Returns the median environment steps per second of an actor."""
    return statistics.median(one["steps_per_s"])


def gain(task: str, width: int, bits: int = 8, folder: str = "") -> float:
    """Returns how many steps a native actor makes for one of the same loop in fp32."""
    return rate(actor(task, width, "native", bits, folder=folder)) / rate(
        actor(task, width, "native", 32, folder=folder)
    )


def phase_us(one: Record, *phases: str) -> float:
    """Returns the median microseconds that some phases together take in a step."""
    measurements: Sequence[Record] = one["measurements"]
    return statistics.median(
        1e6 * sum(m["phases"].get(phase, 0.0) for phase in phases) / m["steps"]
        for m in measurements
    )


def inference_us(one: Record) -> float:
    """Returns the median microseconds of inference, the change of weights included."""
    return phase_us(one, "inference_s", "conversion_s", "load_state_dict_s")


def insert_us(one: Record) -> float:
    """Returns the median microseconds of an insert."""
    return phase_us(one, "insert_s")


def environment_us(one: Record) -> float:
    """Returns the median microseconds of the environment."""
    return phase_us(one, "environment_s")
