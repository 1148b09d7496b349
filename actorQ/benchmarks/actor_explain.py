"""Why a step of the environment is slower inside an actor than alone: `actor_loop --explain`.

One process on one core steps cheetah_run with random actions. Between two steps it does some of an
actor's work: it reads as many bytes as a policy's weights, computes a policy, or inserts
transitions into a server on another core. The time of the environment's own code has three parts:

- the time that it takes alone,
- the further CPU time of the thread, because the environment's data left the caches,
- the wall time above CPU time, in which other threads of the process had the core.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import resource
import statistics
import time
from typing import Any
from typing import NamedTuple

from actorQ.benchmarks import actor_sides
from actorQ.benchmarks import backends
from actorQ.benchmarks import remote
from actorQ.core import config as config_lib
from actorQ.core import settings
from actorQ.core import timing

_TASK = "dm_control,cheetah_run"
_POLICY = "2048,2048,2048"
_FP32_BYTES, _INT8_BYTES = 33_600_000, 8_400_000  # Sizes of that policy's weights.
_SINGLE, _BLOCKS = "one at a time", "in blocks"


@dataclasses.dataclass(frozen=True)
class Case:
    """The work that is done between two steps of the environment.

    Attributes:
      touched_bytes: Bytes of a buffer that are read.
      policy: Inference mode and bits of a policy that is computed, or None.
      inserts: Way in which transitions are inserted, or None.
    """

    touched_bytes: int = 0
    policy: tuple[str, int] | None = None
    inserts: str | None = None

    @property
    def name(self) -> str:
        """A description of the case."""
        parts = []
        if self.touched_bytes:
            parts.append(f"reads {self.touched_bytes / 1e6:.1f} MB")
        if self.policy:
            parts.append(f"{self.policy[0]} {self.policy[1]} bits")
        if self.inserts:
            parts.append(f"inserts {self.inserts}")
        return ", ".join(parts) or "alone"


class Cost(NamedTuple):
    """Mean microseconds and context switches of one step.

    Attributes:
      environment_us: Wall time of the environment's step.
      environment_cpu_us: CPU time of the acting thread in the environment's step.
      between_us: Wall time of reading or inference.
      insert_us: Wall time of the insert.
      insert_cpu_us: CPU time of the acting thread in the insert.
      between_cpu_us: CPU time of the acting thread in reading or inference.
      process_us: CPU time of the whole process.
      waits: Voluntary context switches of the whole process.
      preemptions: Involuntary context switches of the acting thread.
    """

    environment_us: float
    environment_cpu_us: float
    between_us: float
    insert_us: float
    insert_cpu_us: float
    between_cpu_us: float
    process_us: float
    waits: float
    preemptions: float


def cases(native: bool) -> list[Case]:
    """Returns the cases in the order of the table.

    Args:
      native: Whether the native kernels were built.
    """
    policies = [(mode, bits) for mode in backends.modes(native) for bits in (32, 8)]
    return [
        Case(),
        Case(touched_bytes=_FP32_BYTES),
        Case(touched_bytes=_INT8_BYTES),
        Case(inserts=_SINGLE),
        Case(inserts=_BLOCKS),
        Case(touched_bytes=_FP32_BYTES, inserts=_SINGLE),
        Case(touched_bytes=_FP32_BYTES, inserts=_BLOCKS),
        *(Case(policy=policy) for policy in policies),
        *(Case(policy=policy, inserts=how) for policy in policies for how in (_SINGLE, _BLOCKS)),
    ]


# --- Called in the actor's process ---

_bench: dict[str, Any] = {}


class _SingleWriter:
    """Writes transitions one at a time, as this project first did, for comparison only."""

    def __init__(self, client: Any, table: str, layout: Any):
        self._writer = client.trajectory_writer(num_keep_alive_refs=1)
        self._table = table
        self._layout = layout
        self._unflushed = 0

    def write(self, transition: Any) -> None:
        """Inserts a transition, and waits for its predecessors after every 20."""
        self._writer.append(self._layout.pack(transition))
        self._writer.create_item(self._table, 1.0, self._writer.history[-1])
        self._unflushed += 1
        if self._unflushed == 20:
            self._writer.flush(20, 30_000)
            self._unflushed = 0


def prepare(config: config_lib.RunConfig) -> None:
    """Makes everything that the cases need, except the policies."""
    import numpy as np

    from actorQ.actor import n_step_returns
    from actorQ.actor import transition_writer
    from actorQ.environments import suites
    from actorQ.wire import connection
    from actorQ.wire import replay

    environment = suites.make(_TASK, 0)
    environment.reset()
    layout = replay.Layout.of(environment.spec)
    client = connection.Connection(config).client
    table = config.replay_table_name
    rng = np.random.default_rng(0)
    size = environment.spec.action_size
    assert size is not None  # The task's actions are continuous.
    _bench.update(
        environment=environment,
        actions=rng.uniform(-1, 1, (1000, size)).astype(np.float32),
        buffer=np.ones(_FP32_BYTES // 8, np.int64),
        writers={
            _SINGLE: _SingleWriter(client, table, layout),
            _BLOCKS: transition_writer.TransitionWriter(client, table, layout),
        },
        policies={},
        accumulator=n_step_returns.NStepAccumulator(config.n_step, config.discount),
    )


def _policy(mode: str, bits: int) -> Callable[[Any], Any]:
    from actorQ.policy import architecture as architecture_lib

    known = _bench["policies"]
    if (mode, bits) not in known:
        sizes = settings.hidden_sizes("model_str", _POLICY)
        architecture = architecture_lib.make(_bench["environment"].spec, sizes)
        known[mode, bits] = backends.make(architecture, bits, mode)
    return known[mode, bits]


def run_case(case: Case, seconds: float) -> Cost:
    """Steps the environment for `seconds` and returns the cost of a step."""
    environment, actions = _bench["environment"], _bench["actions"]
    accumulator = _bench["accumulator"]
    buffer = _bench["buffer"][: case.touched_bytes // 8]
    infer = _policy(*case.policy) if case.policy else None
    write = _bench["writers"][case.inserts].write if case.inserts else None
    clock, cpu = time.perf_counter, time.thread_time
    totals = [0.0] * 6
    timestep = environment.reset()
    accumulator.first(timestep.observation)
    steps = 0
    self_before = resource.getrusage(resource.RUSAGE_SELF)
    thread_before = resource.getrusage(resource.RUSAGE_THREAD)
    process = time.process_time()
    until = clock() + seconds
    while (started := clock()) < until:
        started_cpu = cpu()
        if infer:
            infer(timestep.observation[None])
        elif case.touched_bytes:
            buffer.sum()
        action = actions[steps % len(actions)]
        between, between_cpu = clock(), cpu()
        timestep = environment.step(action)
        stepped, stepped_cpu = clock(), cpu()
        last = timestep.last()
        if write:
            for transition in accumulator.step(
                action, timestep.reward, timestep.discount, timestep.observation, last
            ):
                write(transition)
        inserted, inserted_cpu = clock(), cpu()
        if last:
            timestep = environment.reset()
            accumulator.first(timestep.observation)
        totals[0] += stepped - between
        totals[1] += stepped_cpu - between_cpu
        totals[2] += between - started
        totals[3] += inserted - stepped
        totals[4] += inserted_cpu - stepped_cpu
        totals[5] += between_cpu - started_cpu
        steps += 1
    process = time.process_time() - process
    self_after = resource.getrusage(resource.RUSAGE_SELF)
    thread_after = resource.getrusage(resource.RUSAGE_THREAD)
    switches = (
        self_after.ru_nvcsw - self_before.ru_nvcsw, thread_after.ru_nivcsw - thread_before.ru_nivcsw
    )
    return Cost._make([
        *(1e6 * total / steps for total in (*totals, process)),
        *(count / steps for count in switches),
    ])


# --- In the driver ---


def explain(repeats: int, quick: bool, out: str | None) -> None:
    """Measures all cases in turn and prints the table; with `out` writes it."""
    from actorQ.policy.native import library

    cores = timing.pin(2)
    chosen = cases(library.available())
    config = config_lib.RunConfig(taskstr=_TASK, port=0, min_replay_size=1)
    with remote.remotes([cores[1], cores[0]]) as (actor, server):
        layout = actor.call(actor_sides.layout_of, _TASK)
        port = server.call(remote.start_server, config, layout)
        actor.call(prepare, dataclasses.replace(config, server_address=f"localhost:{port}"))
        seconds = 0.5 if quick else 1.5

        def measure(case: Case) -> Cost:
            timing.progress(case.name)
            actor.call(run_case, case, 0.2)  # Warm-up: the caches held another case's data.
            return actor.call(run_case, case, seconds)

        found = timing.interleave(
            {case: functools.partial(measure, case) for case in chosen}, repeats
        )
    medians = {
        case: Cost._make(map(statistics.median, zip(*costs, strict=True)))
        for case, costs in found.items()
    }
    timing.report(
        "actor_explain",
        f"Where a step of {_TASK} goes inside an actor's process on one core, microseconds; "
        f"policy {_POLICY.replace(',', ', ')}",
        ("between two steps", "environment step", "alone", "+ cold caches", "+ other threads",
         "reading or policy", "insert", "insert, own CPU", "process CPU", "beside the rest",
         "waits", "preemptions"),
        [_row(case, cost, medians[Case()]) for case, cost in medians.items()],
        {"cases": {case.name: [cost._asdict() for cost in costs] for case, costs in found.items()}},
        out,
        notes=(
            "environment step = alone + cold caches (more CPU time of the acting thread) + other "
            "threads (wall time in which it did not run).",
            "beside the rest: process CPU less that of the environment and of reading or policy. "
            "An insert costs so much in all, wherever it is charged.",
            "waits: voluntary context switches of all threads in a step; preemptions: involuntary "
            "ones of the acting thread.",
        ),
    )


def _row(case: Case, cost: Cost, alone: Cost) -> Sequence[str]:
    cold = cost.environment_cpu_us - alone.environment_cpu_us
    others = cost.environment_us - cost.environment_cpu_us
    base = alone.environment_cpu_us
    rest = cost.process_us - cost.environment_cpu_us - cost.between_cpu_us
    figures = (
        cost.environment_us, base, cold, others, cost.between_us, cost.insert_us,
        cost.insert_cpu_us, cost.process_us, rest,
    )
    return [
        case.name, *(f"{figure:.0f}" for figure in figures), f"{cost.waits:.2f}",
        f"{cost.preemptions:.2f}",
    ]
