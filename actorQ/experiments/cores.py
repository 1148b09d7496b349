"""How runs share out the machine's cores, and how many each of them gets. Imports no framework."""

from collections.abc import Sequence

from actorQ.core import provenance
from actorQ.experiments import kinds
from actorQ.experiments import results
from actorQ.experiments import specification
from actorQ.launch import processes


def most_at_once(runs: Sequence[specification.Run]) -> int:
    """Returns how many of these runs can go on at once with the cores that each needs."""
    return max(1, physical() // needed(runs))


def needed(runs: Sequence[specification.Run]) -> int:
    """Returns how many cores a run keeps busy, of these the one that wants most."""
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
    """Returns how many cores a run gets: of a container's quota, too, only its share.

    Two hyperthreads of one core are two usable cores, and one physical.
    """
    usable, groups = provenance.usable_cores(), processes.physical_cores()
    if own:
        usable = max(1, min(len(own), usable // parallel))
        groups = [core for core in groups if core & own]
    return {"usable_cores": usable, results.PHYSICAL_CORES: min(len(groups), usable)}
