"""The benchmarks of inference, actors and whole runs, for `results/benchmarks.md`."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import statistics

from docs.generators import prose
from docs.generators import tables
from docs.generators.training import benchmark_records as records

CHEETAH, CARTPOLE = "dm_control,cheetah_run", "dm_control,cartpole_balance"
FINGER = "dm_control,finger_spin"
_ACROBOT, _MOUNTAIN_CAR = "gym,Acrobot-v1", "gym,MountainCar-v0"
_REFERENCE = "torch fp32"
_SIDES = (
    "torch fp32", "torch int8", "ORT int8", "ORT int4", "native fp32", "native fp16",
    "native int8", "native int4",
)


def verdict(met: bool) -> str:
    """Returns how a measured figure compares with its target."""
    return "met" if met else "**missed**"


def at_least(measured: float, target: float, digits: int = 1) -> tuple[str, str]:
    """Returns a factor and the verdict on it."""
    return f"{measured:.{digits}f}x", verdict(measured >= target)


def span(values: Iterable[float], digits: int = 0) -> str:
    """Returns the least and the largest value, or the only one."""
    found = [f"{value:.{digits}f}" for value in sorted(values)]
    return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


@functools.cache
def policies() -> list[str]:
    """Returns the policies that `inference` measured."""
    return [
        name for name, of in records.load("inference").items()
        if isinstance(of, Mapping) and "seconds" in of
    ]


def inference_us(policy: str, side: str, record: str = "inference") -> float:
    """Returns the median microseconds of one observation, in the record of a machine."""
    return 1e6 * statistics.median(records.load(record)[policy]["seconds"][side])


def speed(policy: str, side: str) -> float:
    """Returns how many times as fast as torch's eager fp32 a side is."""
    return inference_us(policy, _REFERENCE) / inference_us(policy, side)


def _inference_table() -> str:
    names = [side.replace("ORT", "ONNX Runtime") for side in _SIDES]
    return tables.table(
        ["One observation, µs", *names],
        [
            [policy, *(f"{inference_us(policy, side):,.1f}" for side in _SIDES)]
            for policy in policies()
        ],
    )


def _floor(policy: str, precision: str) -> float:
    return inference_us(policy, f"native {precision}") / inference_us(policy, f"floor {precision}")


def _inference_targets() -> list[list[str]]:
    wide = "3x2048"
    int8, int4 = speed(wide, "native int8"), speed(wide, "native int4")
    widths = [policy for policy in policies() if policy != "Atari"]
    every = min(speed(policy, "native int8") for policy in widths)
    half = speed(wide, "native fp16")
    return [
        ["int8 inference against torch's eager fp32, 3x2048", "4x", *at_least(int8, 4)],
        ["the same, against the time to read the weights once", "at most 1.2x",
         f"{_floor(wide, 'int8'):.2f}x", verdict(_floor(wide, "int8") <= 1.2)],
        ["int8 at 3x64", "2x", *at_least(speed("3x64", "native int8"), 2)],
        ["int8 at 3x256", "2x", *at_least(speed("3x256", "native int8"), 2)],
        ["int8 at the slowest width", "never slower", *at_least(every, 1)],
        ["int8 with Atari's network", "never slower",
         *at_least(speed("Atari", "native int8"), 1)],
        ["int4 inference against torch's eager fp32, 3x2048", "6x", *at_least(int4, 6)],
        ["fp16 against torch's eager fp32, 3x2048", "1.9x", *at_least(half, 1.9)],
    ]


def inserts_us(folder: str, bits: int, width: int | None = None) -> list[float]:
    """Returns the microseconds of an insert in native actors with one environment."""
    return [
        records.insert_us(one) for one in records.actors(folder)
        if (one["loop"], one["bits"], one["environments"]) == ("native", bits, 1)
        and width in (None, one["width"])
    ]


def many_environments() -> float:
    """Returns the gain of eight environments in an actor, from rounds that had both."""
    one = records.actor(FINGER, 2048, "native", 8)["steps_per_s"]
    many = records.actor(FINGER, 2048, "native", 8, environments=8)["steps_per_s"]
    return statistics.median(many) / statistics.median(one[-len(many):])


def against_original(width: int, loop: str = "native", original: str = "original") -> float:
    """Returns cheetah_run's int8 steps per second over those of the original's stand-in."""
    return records.rate(records.actor(CHEETAH, width, loop, 8)) / records.rate(
        records.actor(CHEETAH, width, original, 8)
    )


def _actor_targets() -> list[list[str]]:
    pulls = "original with pulls"
    loop = records.gain(CARTPOLE, 2048)
    inserts = inserts_us("", 8)
    return [
        ["insert of an n-step transition at int8", "60 µs", f"{span(inserts)} µs",
         verdict(max(inserts) <= 60)],
        ["whole int8 actor against the original, cheetah_run, 3x2048", "4x",
         *at_least(against_original(2048), 4)],
        ["the same, against the original with pulls", "8x",
         *at_least(against_original(2048, original=pulls), 8)],
        ["the same at 3x256, without pulls", "6x", *at_least(against_original(256), 6)],
        ["int8 against fp32 actor, same loop, cartpole_balance, 3x2048", "2.8x",
         *at_least(loop, 2.8)],
        ["8 environments in an actor against 1, int8, finger_spin, 3x2048", "2.5x",
         *at_least(many_environments(), 2.5, 2)],
    ]


def _targets() -> str:
    return tables.table(
        ["Figure", "Target", "Measured", "Verdict"], [*_inference_targets(), *_actor_targets()],
        text_columns=2,
    )


@prose.wrapped
def _answer() -> str:
    return (
        f"**Answer.** An int8 policy of 3x2048 runs {speed('3x2048', 'native int8'):.1f} times "
        "as fast as torch's eager fp32, and an int4 policy "
        f"{speed('3x2048', 'native int4'):.1f} times. "
        f"A whole int8 actor makes {against_original(2048):.1f} times the steps of a stand-in "
        "for the original's actor."
    )


@prose.wrapped
def _beside() -> str:
    """Returns what stands beside the table of targets."""
    wide = "3x2048"
    own = [
        inference_us(wide, "native fp32") / inference_us(wide, f"native {name}")
        for name in ("int8", "fp16")
    ]
    torch = [
        against_original(2048, "pytorch"),
        against_original(2048, "pytorch", "original with pulls"),
    ]
    gym = [
        records.insert_us(records.actor(task, 2048, "native", bits, folder="gym"))
        for bits in (8, 32) for task in (_ACROBOT, _MOUNTAIN_CAR)
    ]
    return "\n".join([
        f"- With 3x2048, torch's own int8 is {speed(wide, 'torch int8'):.1f} times as fast as its "
        f"fp32. ONNX Runtime is {speed(wide, 'ORT int8'):.1f} times as fast with int8, and "
        f"{speed(wide, 'ORT int4'):.1f} times with int4.",
        f"- Against our own fp32, int8 is {own[0]:.1f} and fp16 {own[1]:.1f} times as fast.",
        f"- With torch's int8 in place of our kernels, the whole actor reaches {torch[0]:.1f} "
        f"times the original's rate, and {torch[1]:.1f} times with pulls.",
        "- An insert counts the background threads. With 3x2048 in fp32 it takes "
        f"{span(inserts_us('', 32, 2048))} µs.",
        f"- On another day an int8 insert took {gym[0]:.0f} µs in Acrobot-v1 and {gym[1]:.0f} µs "
        f"in MountainCar-v0. In fp32 they took {gym[2]:.0f} and {gym[3]:.0f} µs.",
    ])


def _actor_table() -> str:
    sides = [("original", 8), ("native", 32), ("native", 8), ("native", 4)]
    tasks = {
        "cheetah_run": CHEETAH, "walker_stand": "dm_control,walker_stand",
        "cartpole_balance": CARTPOLE, "humanoid_walk": "dm_control,humanoid_walk",
        "finger_spin": FINGER, "CartPole-v1": "gym,CartPole-v1",
    }
    return tables.table(
        ["Environment steps/s of an actor, 3x2048", "original int8", "native fp32", "native int8",
         "native int4", "int8 / fp32"],
        [
            [name, *(
                tables.number(records.rate(records.actor(task, 2048, loop, bits)))
                for loop, bits in sides
            ), f"{records.gain(task, 2048):.2f}"]
            for name, task in tasks.items()
        ],
    )


@prose.wrapped
def _narrow_actor() -> str:
    """Returns what a policy of 3x256 gains."""
    tasks = {one["task"] for one in records.actors() if one["environments"] == 1}
    most = max(records.gain(task, 256) for task in tasks)
    rates = {
        side: records.rate(records.actor(CHEETAH, 256, *side))
        for side in (("native", 8), ("native", 32), ("original", 8))
    }
    return (
        f"At 3x256 the weights fit the cache, and int8 gains at most {100 * (most - 1):.0f} %. "
        f"There cheetah_run makes {rates['native', 8]:,.0f} steps/s in int8 and "
        f"{rates['native', 32]:,.0f} in fp32. "
        f"The original makes {rates['original', 8]:,.0f}, so the gain is the loop's."
    )


@prose.wrapped
def _many_reading() -> str:
    """Returns why eight environments gain less than the target."""
    many = records.actor(FINGER, 2048, "native", 8, environments=8)
    return (
        "- **8 environments in an actor.** The target was set when one int8 observation took "
        f"345 µs. It takes {inference_us('3x2048', 'native int8'):.0f} µs here, so a batch has "
        "less to save.\n"
        f"- At {records.rate(many):,.0f} steps/s a step takes {1e6 / records.rate(many):.0f} µs. "
        f"{records.environment_us(many):.0f} of them are MuJoCo and {records.insert_us(many):.0f} "
        "the insert."
    )


def _end_to_end() -> str:
    rows = []
    for title, name in (
        ("3x2048, batch 128, 1 sample per insert", "end_to_end_3x2048"),
        ("3x1024, batch 256, 2 samples per insert", "end_to_end"),
    ):
        runs = records.load(name)["runs"]
        by_bits = {
            (run["actors"], run["bits"]): {
                rate: records.run_rate(run, rate)
                for rate in ("actor_steps_per_s", "learner_steps_per_s")
            }
            for run in runs
        }
        for actors in sorted({run["actors"] for run in runs}):
            fp32, int8 = by_bits[actors, 32], by_bits[actors, 8]
            row = [title, str(actors)]
            for rate, digits in (("actor_steps_per_s", 0), ("learner_steps_per_s", 1)):
                row += [
                    tables.number(fp32[rate], digits), tables.number(int8[rate], digits),
                    f"{int8[rate] / fp32[rate]:.2f}",
                ]
            rows.append(row)
    return tables.table(
        ["Policy", "Actors", "actor steps/s: fp32", "int8", "gain", "learner steps/s: fp32",
         "int8", "gain"],
        rows,
    )


def _explained(case: str, *names: str) -> float:
    """Returns the median of a sum of figures of a case of `actor_explain`."""
    return statistics.median(
        sum(one[name] for name in names) for one in records.load("actor_explain")["cases"][case]
    )


def _cold_us(case: str) -> float:
    """Returns the microseconds that cold caches add to the environment's step."""
    alone = _explained("alone", "environment_cpu_us")
    return _explained(case, "environment_cpu_us") - alone


def _beside_us(case: str) -> float:
    """Returns the CPU microseconds of a step beside environment and policy."""
    return statistics.median(
        one["process_us"] - one["environment_cpu_us"] - one["between_cpu_us"]
        for one in records.load("actor_explain")["cases"][case]
    )


@prose.wrapped
def _explain() -> str:
    """Returns why an environment's step costs more inside an actor."""
    alone = _explained("alone", "environment_cpu_us")
    torch = "pytorch 32 bits, inserts one at a time"
    whole = _explained(torch, "environment_us")
    policy = _cold_us("pytorch 32 bits")
    single = "inserts one at a time"
    dearer = _explained(single, "environment_us") - alone
    blocks = "native 8 bits, inserts in blocks"
    return "\n".join([
        f"- cheetah_run's step takes {alone:.0f} µs alone. In a torch fp32 actor of 3x2048 that "
        f"inserts transitions one at a time, it takes {whole:.0f} µs.",
        f"- {_cold_us(torch):.0f} of these {whole - alone:.0f} µs are cold caches. The policy's "
        "33.6 MB of weights throw MuJoCo's data out in every step.",
        f"- The policy alone costs {policy:.0f} of them, and the inserts the other "
        f"{_cold_us(torch) - policy:.0f}.",
        f"- Without a policy, inserts one at a time make the step {dearer:.0f} µs dearer. Caches "
        f"are {_cold_us(single):.0f} of them, and Reverb's writer threads on the same core "
        f"{dearer - _cold_us(single):.0f}.",
        f"- Those inserts cost {_beside_us(single):.0f} µs of CPU.",
        "- Actors therefore have smaller weights, and insert blocks of 32. With int8 the "
        f"environment's step takes {_explained(blocks, 'environment_us'):.0f} µs, and an insert "
        f"{_beside_us(blocks):.0f} µs of CPU, threads included.",
    ])


@prose.wrapped
def _growth() -> str:
    """Returns how server, replay and actors grow."""
    scaling = records.load("scaling")
    rates = [
        statistics.median(one["inserts_per_s"] for one in scaling["actors"][writers])
        for writers in ("1", "8")
    ]
    replay = scaling["replay"]
    sizes = [one["bytes_per_transition"] / 1e3 for one in replay]
    batch_ms = [1e3 / one["batches_per_s"] for one in replay]
    return "\n".join([
        f"- One server took {rates[0]:,.0f} inserts/s from one writer, and {rates[1]:,.0f} from "
        "eight on one core.",
        f"- A replayed transition of 224 bytes takes {span(sizes, 1)} kB.",
        f"- A batch of 256 takes {batch_ms[0]:.1f} ms at {replay[0]['transitions']:,} transitions "
        f"and {batch_ms[-1]:.1f} ms at {replay[-1]['transitions']:,}.",
    ])


def _start_table() -> str:
    names = {
        "native 8": "native int8", "pytorch 8": "torch's int8",
        "original 8": "the original's stand-in, int8",
    }

    def cells(folder: str, side: str) -> Sequence[str]:
        found = records.load(f"{folder}scaling")["start"][side]
        seconds, size = (
            statistics.median(one[name] for one in found) for name in ("wall_s", "megabytes")
        )
        return f"{seconds:.1f}", f"{size:.0f}"

    return tables.table(
        ["Actor, 3x2048", "Zen 3, now: start, s", "memory, MB", "Zen 5, earlier: start, s",
         "memory, MB"],
        [[name, *cells("zen3/", side), *cells("", side)] for side, name in names.items()],
    )


@functools.cache
def _int4_returns(task: str, bits: int) -> list[str]:
    """Returns the returns of policies that actors of some bits trained and play, by seed."""
    return [
        row["mean_return"]
        for row in tables.csv_rows(tables.ACTORQ_RESULTS / "int4" / "returns.csv")
        if (row["task"], row["actors_bits"], row["played_bits"]) == (task, str(bits), str(bits))
    ]


def _int4_table() -> str:
    names = {"cartpole_balance": "cartpole balance", "cartpole_gym": "CartPole-v0"}
    return tables.table(
        ["Task", "trained and played in int8, by seed", "in int4, by seed"],
        [
            [name, *(", ".join(_int4_returns(task, bits)) for bits in (8, 4))]
            for task, name in names.items()
        ],
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "answer": _answer,
    "targets": _targets,
    "beside": _beside,
    "inference": _inference_table,
    "actors": _actor_table,
    "narrow_actor": _narrow_actor,
    "many_reading": _many_reading,
    "end_to_end": _end_to_end,
    "explain": _explain,
    "growth": _growth,
    "start": _start_table,
    "int4": _int4_table,
}
