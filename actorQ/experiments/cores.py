"""The cores of the machine, and how runs share them. Imports no framework."""

from collections.abc import Sequence

from actorQ.core import provenance
from actorQ.experiments import kinds
from actorQ.experiments import results
from actorQ.experiments import specification
from actorQ.launch import processes


def most_at_once(runs: Sequence[specification.Run]) -> int:
    """Returns how many of these runs can go on at once, each with the cores that it needs."""
    return max(1, physical() // needed(runs))


def needed(runs: Sequence[specification.Run]) -> int:
    """Returns how many cores the most demanding of these runs keeps busy."""
    return max(kinds.get(run.kind).cores(run.settings) for run in runs)


def physical() -> int:
    """Returns how many physical cores runs can share out here."""
    return of_run(None, 1)[results.PHYSICAL_CORES]


def share(slot: int, parallel: int) -> set[int] | None:
    """Returns the cores of a slot, or None for all."""
    cores = processes.sharable_cores()
    each = len(cores) // parallel
    mine = cores[slot * each : (slot + 1) * each]
    return set().union(*mine) if parallel > 1 and each else None


def of_run(own: set[int] | None, parallel: int) -> dict[str, int]:
    """Returns how many usable and physical cores a run gets.

    A container's quota of cores is shared as well. Two hyperthreads of one core are two usable
    cores and one physical core.

    Args:
      own: The run's own cores; None: all.
      parallel: Runs at a time.
    """
    usable, groups = provenance.usable_cores(), processes.physical_cores()
    if own:
        usable = max(1, min(len(own), usable // parallel))
        groups = [core for core in groups if core & own]
    return {"usable_cores": usable, results.PHYSICAL_CORES: min(len(groups), usable)}
