"""A model of N actors, a learner and the network between them, as a discrete-event simulation.

The model (see `Cluster` for the quantities):

- Each actor has a core of its own and makes r steps/s. Every `update_period` steps it looks for
  newer weights. If the learner has published since, it downloads one message of M bytes.
- With blocking pulls an actor stands still for every look's latency and for every download. So does
  the original's, which moreover downloads at every look, news or not.
- With background pulls, as in this code, an actor goes on with the weights that it has, and asks
  again at the first look after the download.
- The learner's host has one link with a bandwidth of its own in each direction. Downloads share one
  direction equally (processor sharing). Inserts of b bytes share the other direction: if it is too
  narrow, all acting actors slow down alike.
- The learner takes at most k samples for each insert, B in a step, and makes at most L steps/s.
  Samples that it has not taken yet stay allowed. It publishes new weights every `push_period_s`
  seconds, or after each step if that is longer. As in this code, actors never wait for the learner.

The model leaves out: time for conversion in the broadcaster, bytes of looks, packets and their
loss, the spacing of pushes by --push_share, actors that differ or end, and the CPU time that
serving N actors costs the learner's host.

Between two events all rates are constant. Two clocks (virtual times) count the steps of an actor
that acts all the time, and the bytes of a download that goes on all the time. The moment of a look
or of the end of a download is a reading of its clock that is known in advance. So an event costs
O(log N) however many actors change their speed. Publications that no actor waits for are no events:
the newest of them is computed when an actor looks.

Imports no framework.
"""

import collections
import dataclasses
import heapq
import math
from typing import NamedTuple

import numpy as np

_WARM_UP_CYCLES = 2  # `_cycle_s` says how long a cycle is.
_MEASURED_CYCLES = 8
_NOTHING = 1e-9  # Learner steps below this are rounding errors.


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A cluster to be simulated."""

    actors: int  # Number of actors, N.
    steps_per_s: float  # Environment steps per second of an actor that waits for nothing, r.
    message_bytes: float  # Size of the weights on their way to an actor, M.
    insert_bytes: float  # Bytes on the wire for each environment step, b.
    learner_steps_per_s: float  # Steps per second of a learner that never waits for data, L.
    batch_size: float  # Samples in a learner step, B.
    samples_per_insert: float  # Most samples for each insert, k.
    update_period: int  # Environment steps of an actor between two looks.
    push_period_s: float  # Minimum seconds between two publications; 0: after every learner step.
    # Bytes per second of the learner's link in each direction; may be infinite.
    bandwidth: float = math.inf
    latency_s: float = 0.0  # Seconds that a look takes besides the download.
    blocking: bool = True  # Whether an actor stands still while it looks and downloads.

    @property
    def demand(self) -> float:
        """Environment steps per second that the learner can use, L B / k."""
        return self.learner_steps_per_s * self.batch_size / self.samples_per_insert

    @property
    def own_steps_per_s(self) -> float:
        """Steps per second of one actor that has no news to load and a free link."""
        period_s = self.update_period / self.steps_per_s
        return self.update_period / (period_s + self.latency_s * self.blocking)


class Outcome(NamedTuple):
    """Rates in the steady part of a simulation."""

    steps_per_s: float  # Environment steps per second of all actors.
    learner_steps_per_s: float  # Learner steps per second that the actors' steps allow.
    downloads_per_s: float  # Downloads per second of all actors.
    age_s: float  # Seconds since the weights in use were published, mean over actors and time.


def simulate(cluster: Cluster, seconds: float = 20.0, seed: int = 0) -> Outcome:
    """Runs the model; equal arguments give equal outcomes.

    Args:
      cluster: Cluster to simulate.
      seconds: Simulated seconds that are measured, at least; more if one round of downloads takes
        long. The time before the steady part comes on top.
      seed: Seed of the moments at which actors look first.
    """
    cycle_s = _cycle_s(cluster)
    measured_s = max(seconds, _MEASURED_CYCLES * cycle_s)
    rng = np.random.default_rng(seed)
    return _Simulation(cluster, rng, _WARM_UP_CYCLES * cycle_s, measured_s).outcome()


def _cycle_s(cluster: Cluster) -> float:
    """Returns how long it takes at most until every actor has looked and downloaded once."""
    publication_s = max(cluster.push_period_s, 1 / cluster.learner_steps_per_s)
    rate = min(
        cluster.own_steps_per_s, _share(cluster.bandwidth, cluster.insert_bytes * cluster.actors)
    )
    download_s = cluster.actors * cluster.message_bytes / cluster.bandwidth
    return publication_s + cluster.update_period / rate + cluster.latency_s + download_s


def _share(bandwidth: float, demand: float) -> float:
    return bandwidth / demand if demand else math.inf


class _Simulation:
    """One simulation. Actors are numbers; the module's docstring describes the clocks."""

    def __init__(
        self, cluster: Cluster, rng: np.random.Generator, warm_up_s: float, measured_s: float
    ):
        count = cluster.actors
        self._cluster = cluster
        self._start, self._end = warm_up_s, warm_up_s + measured_s
        self._time = 0.0
        self._steps = 0.0  # Clock: steps of an actor that has acted all the time.
        self._bytes = 0.0  # Clock: bytes of a download that has gone on all the time.
        self._learned = 0.0  # Learner steps.
        self._allowed = 0.0  # Further learner steps that the inserts so far allow.
        self._acting = count
        self._loading = 0
        # Looks are at base + j * update_period on the clock of steps.
        self._base = (-rng.uniform(0, cluster.update_period, count)).tolist()
        self._born = 0.0  # Time of the newest publication.
        self._born_step = 0.0  # Learner step of the newest publication.
        self._held = [0.0] * count  # Time of the publication of the weights in use, by actor.
        self._since = [0.0] * count  # Time since which they have been in use, by actor.
        self._idle = set(range(count))  # Actors that have the newest weights.
        self._looks: list[tuple[float, int]] = []  # Looks that find news: clock of steps, actor.
        self._starts: collections.deque[tuple[float, int]] = collections.deque()  # Time, actor.
        self._loads: list[tuple[float, int, float]] = []  # Clock of bytes, actor, born.
        self._made = 0.0  # Environment steps in the measured part.
        self._downloads = 0
        self._age = 0.0  # Integral over actors and the measured part.

    def outcome(self) -> Outcome:
        """Runs to the end."""
        while self._time < self._end:
            self._next_event()
        for actor in range(self._cluster.actors):
            self._count_age(actor)
        cluster = self._cluster
        measured_s = self._end - self._start
        rate = self._made / measured_s
        return Outcome(
            rate,
            min(
                cluster.learner_steps_per_s, rate * cluster.samples_per_insert / cluster.batch_size
            ),
            self._downloads / measured_s,
            self._age / (cluster.actors * measured_s),
        )

    def _next_event(self) -> None:
        cluster = self._cluster
        step_rate = min(
            cluster.own_steps_per_s,
            _share(cluster.bandwidth, cluster.insert_bytes * self._acting),
        )
        byte_rate = cluster.bandwidth / self._loading if self._loading else 0.0
        supply = self._acting * step_rate * cluster.samples_per_insert / cluster.batch_size
        learn_rate = cluster.learner_steps_per_s
        if self._allowed < _NOTHING:
            learn_rate = min(learn_rate, supply)
        # The earliest event comes next; of two at once, the first one below.
        event, when = None, self._end
        if learn_rate > supply:
            used_up = self._time + self._allowed / (learn_rate - supply)
            if used_up > self._time:
                when = min(when, used_up)
            else:  # The clock cannot resolve so short a time and would stand still for ever.
                self._allowed, learn_rate = 0.0, supply
        if self._loads and byte_rate:
            moment = self._time + max(0.0, self._loads[0][0] - self._bytes) / byte_rate
            if moment < when:
                event, when = self._loaded, moment
        if self._looks and self._acting:
            moment = self._time + max(0.0, self._looks[0][0] - self._steps) / step_rate
            if moment < when:
                event, when = self._look, moment
        if self._starts and self._starts[0][0] < when:
            event, when = self._start_load, self._starts[0][0]
        published = self._publication(learn_rate)
        if self._idle and published < when:
            event, when = self._wake, published
        self._advance(when, step_rate, byte_rate, learn_rate, supply, published)
        if event is not None:
            event()

    def _publication(self, learn_rate: float) -> float:
        """Returns when the next publication will be, at this rate of learning."""
        if not learn_rate:
            return math.inf
        missing = max(0.0, self._born_step + 1 - self._learned)
        allowed = self._born + self._cluster.push_period_s
        return max(self._time + missing / learn_rate, allowed, self._time)

    def _advance(
        self, when: float, step_rate: float, byte_rate: float, learn_rate: float, supply: float,
        published: float,
    ) -> None:
        """Lets time pass at constant rates, and publishes what is due."""
        if published <= when:
            interval = max(self._cluster.push_period_s, 1 / learn_rate)
            self._born = published + math.floor((when - published) / interval) * interval
            self._born_step = self._learned + (self._born - self._time) * learn_rate
        elapsed = when - self._time
        self._made += self._acting * step_rate * max(0.0, when - max(self._time, self._start))
        self._steps += step_rate * elapsed
        if self._loading and math.isfinite(byte_rate):
            self._bytes += byte_rate * elapsed
        self._learned += learn_rate * elapsed
        self._allowed = max(0.0, self._allowed + (supply - learn_rate) * elapsed)
        self._time = when

    # --- Events ---

    def _wake(self) -> None:
        """Newer weights are there: actors that had the newest so far look in their turn."""
        for actor in sorted(self._idle):
            self._schedule_look(actor, later=False)
        self._idle.clear()

    def _schedule_look(self, actor: int, later: bool) -> None:
        """Notes the next look of an actor, which may be now unless `later` is true."""
        period, base = self._cluster.update_period, self._base[actor]
        turns = (self._steps - base) / period
        next_turn = math.floor(turns + 1e-9) + 1 if later else math.ceil(turns - 1e-9)
        heapq.heappush(self._looks, (base + next_turn * period, actor))

    def _look(self) -> None:
        clock, actor = heapq.heappop(self._looks)
        self._steps = max(self._steps, clock)
        if self._cluster.blocking:
            self._acting -= 1
            self._load(actor)
        else:
            self._starts.append((self._time + self._cluster.latency_s, actor))

    def _start_load(self) -> None:
        _, actor = self._starts.popleft()
        self._load(actor)

    def _load(self, actor: int) -> None:
        if not self._loading:
            self._bytes = 0.0  # Keeps the clock's rounding small.
        self._loading += 1
        needed = self._cluster.message_bytes if math.isfinite(self._cluster.bandwidth) else 0.0
        heapq.heappush(self._loads, (self._bytes + needed, actor, self._born))

    def _loaded(self) -> None:
        clock, actor, born = heapq.heappop(self._loads)
        self._bytes = max(self._bytes, clock)
        self._loading -= 1
        self._downloads += self._time >= self._start
        self._count_age(actor)
        self._held[actor], self._since[actor] = born, self._time
        if self._cluster.blocking:
            self._acting += 1
            self._base[actor] = self._steps
        if born < self._born:
            self._schedule_look(actor, later=True)
        else:
            self._idle.add(actor)

    def _count_age(self, actor: int) -> None:
        """Adds the age of an actor's weights over the time in which it used them."""
        first = max(self._since[actor], self._start)
        if self._time > first:
            born = self._held[actor]
            self._age += ((self._time - born) ** 2 - (first - born) ** 2) / 2
