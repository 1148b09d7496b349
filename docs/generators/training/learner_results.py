"""The benchmarks of the learner and of the weights' path.

The blocks stand in `results/benchmarks-learner.md` and `results/without-avx512.md`.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import statistics
from typing import Any

from actorQ.benchmarks import learner_sides
from docs.generators import prose
from docs.generators import tables
from docs.generators.training import benchmark_records as records
from docs.generators.training.benchmark_results import span
from docs.generators.training.benchmark_results import verdict

Rounds = Sequence[Mapping[str, Any]]

_FIRST, _SLOWER = "", "another_day/"  # Folders of the two days.
_ONE, _OWN = "1 core", "2 cores"
_PLACES = {_ONE: "all processes on one core", _OWN: "learner on a core of its own"}
_INT8, _INT8_HALF = "int8, native", "int8, native, bfloat16 push"
_SHAPES = ("3x2048, 256", "3x2048, 64", "3x256, 256", "3x256, 64")
_ROUND_S = {_FIRST: 4.0, _SLOWER: 15.0}  # Seconds of a round beside publishing.


def _path(folder: str, place: str) -> dict[str, Rounds]:
    found: dict[str, Rounds] = records.load(f"{folder}parameter_path")["placements"][place]
    return found


def _ms(folder: str, place: str, side: str, name: str = "total_s") -> float:
    """Returns the median milliseconds of a stage, or of the way from push to first action."""
    return 1e3 * statistics.median(one[name] for one in _path(folder, place)[side])


def _part(side: str) -> float:
    """Returns the size of a message as a part of the same weights in fp32."""
    one = _path(_FIRST, _ONE)[side][0]
    return float(one["message_bytes"]) / float(one["fp32_bytes"])


def _narrow_part(precision: str) -> float:
    """Returns the same part for a policy of 3x256."""
    rows = tables.csv_rows(
        tables.ACTORQ_RESULTS / "final_reward" / "report" / "final_reward.csv"
    )
    (part,) = [
        float(row["message_part_of_fp32"]) for row in rows if row["precision"] == precision
    ]
    return part


def _path_table() -> str:
    sides = {
        "int8, original (stand-in)": "int8, the original's stand-in",
        "fp32, native": "fp32", "fp16, native": "fp16", _INT8: "int8", "int4, native": "int4",
        "int8, pytorch": "int8, torch's operators",
        _INT8_HALF: "int8, bfloat16 push", "int4, native, bfloat16 push": "int4, bfloat16 push",
    }
    return tables.table(
        ["From push to first action, 3x2048", "one core, ms", "learner on its own core, ms",
         "actor's hold-up, ms", "message, MB", "of fp32"],
        [
            [
                name, *(f"{_ms(_FIRST, place, side):.0f}" for place in (_ONE, _OWN)),
                span(_ms(_FIRST, place, side, "hold_up_s") for place in (_ONE, _OWN)),
                f"{_path(_FIRST, _ONE)[side][0]['message_bytes'] / 1e6:.2f}",
                f"{_part(side):.3f}",
            ]
            for side, name in sides.items()
        ],
    )


def _judged(value: float, target: float, text: str) -> str:
    """Returns a figure that must not exceed its target, marked if it does."""
    return text if value <= target else f"{text} **missed**"


def _path_targets() -> str:
    rows = []
    for side, target in ((_INT8, 250), (_INT8_HALF, 100)):
        for place, where in _PLACES.items():
            pushed = "with a bfloat16 push" if side == _INT8_HALF else "push to first action, int8"
            rows.append([f"{pushed}, {where}", f"{target} ms", *(
                _judged(_ms(day, place, side), target, f"{_ms(day, place, side):.0f} ms")
                for day in (_FIRST, _SLOWER)
            )])
    holds = [
        _ms(_FIRST, place, side, "hold_up_s") for place in _PLACES
        for side in _path(_FIRST, place) if "original" not in side
    ]
    rows.append(["the actor's hold-up by new weights", "20 ms",
                 _judged(max(holds), 20, f"{span(holds)} ms"), ""])
    for name, share in (("int8", 0.26), ("int4", 0.135)):
        wide, narrow = _part(f"{name}, native"), _narrow_part(name)
        rows += [
            [f"bytes of an {name} message against fp32, {policy}", f"{share:g}",
             _judged(part, share, f"{part:.3f}"), ""]
            for policy, part in (("3x2048", wide), ("3x256", narrow))
        ]
    return tables.table(["Figure", "Target", "First day", "Slower day"], rows, text_columns=2)


@prose.wrapped
def _slower() -> str:
    """Returns how much longer the weights' path took on the slower day."""
    ours: list[float] = []
    int8: list[float] = []
    original: list[float] = []
    for place in _PLACES:
        for side in _path(_SLOWER, place):
            ratio = _ms(_SLOWER, place, side) / _ms(_FIRST, place, side)
            (original if "original" in side else ours).append(ratio)
            if side.startswith("int8, native"):
                int8.append(ratio)
    rates = [
        statistics.median(
            one["steps_per_s"] for one in records.load(f"{day}parameter_path")["lost"][_INT8]
        )
        for day in (_FIRST, _SLOWER)
    ]
    quick = {
        (commit, place): [
            f"{_ms(f'another_day/quick_{commit}_{run}/', place, _INT8):.0f}" for run in (1, 2)
        ]
        for commit in ("beed109", "dbf0e01") for place in _PLACES
    }

    def both(commit: str, place: str) -> str:
        return " and ".join(quick[commit, place])

    return "\n".join([
        f"- Two days later int8's paths took {span(int8, 1)} times as long. All of our paths took "
        f"{span(ours, 1)} times as long, and the original's stand-in {span(original, 2)} times.",
        f"- The learner made {rates[1]:.1f} instead of {rates[0]:.1f} steps/s on that day.",
        "- The cause was the host, not the code. Two short runs (`--quick`) of each commit were "
        "made in turn on that day.",
        f"- There the old commit (beed109) took {both('beed109', _ONE)} ms on one core with int8. "
        f"The new one (dbf0e01) took {both('dbf0e01', _ONE)} ms.",
        f"- With the learner on its own core the old commit took {both('beed109', _OWN)} ms, and "
        f"the new one {both('dbf0e01', _OWN)}.",
    ])


def _lost(rounds: Sequence[float]) -> list[str]:
    """Returns the median share of lost steps and its range, in percent."""
    percent = sorted(100 * one for one in rounds)
    middle = statistics.median(percent)
    text = f"{middle:.2f} %" if abs(middle) < 0.1 else f"{middle:.1f} %"
    return [_judged(middle, 2, text), f"{percent[0]:.1f} to {percent[-1]:.1f} %"]


def _both_busy(width: str) -> tuple[list[float], float]:
    """Returns the lost shares with both cores busy, and the pushes of a round."""
    of = records.load(f"{_SLOWER}learner")["publishing"][width]
    without, with_it = (side["seconds"] for side in of["sides"])
    lost = [1 - a / b for a, b in zip(without, with_it, strict=True)]
    return lost, of["pushes"] / len(lost)


def _publishing_table() -> str:
    rows = []
    for day, name in ((_SLOWER, "slower day"), (_FIRST, "first day")):
        for side, push in ((_INT8, "float32 push"), (_INT8_HALF, "bfloat16 push")):
            found = records.load(f"{day}parameter_path")["lost"][side]
            pushes = [one["pushes_per_s"] * _ROUND_S[day] for one in found]
            rows.append([
                f"learner on its own core, 3x2048, {push}, {name}", str(len(found)), span(pushes),
                *_lost([one["lost"] for one in found]),
            ])
    for width in ("3x2048", "3x256"):
        lost, each = _both_busy(width)
        rows.append([
            f"learner, server and receiver on both cores, {width}, slower day", str(len(lost)),
            f"{each:.0f}", *_lost(lost),
        ])
    return tables.table(
        ["Placement", "Rounds", "pushes in each", "lost (target 2 %)", "range"], rows
    )


def _side(day: str, threads: str, shape: str, **wanted: str) -> Mapping[str, Any]:
    """Returns a side of the learner's benchmark."""
    wanted = {"precision": "float32", "optimizer": "fused", "source": "memory", **wanted}
    (found,) = [
        side for side in records.load(f"{day}learner")[threads][shape]
        if all(side[key] == value for key, value in wanted.items())
    ]
    return dict(found)


def _per_s(side: Mapping[str, Any]) -> float:
    return 1 / statistics.median(side["seconds"])


def _policy(shape: str) -> str:
    return shape.replace(", ", ", batch ")


def _fed_table() -> str:
    rows = []
    for shape in _SHAPES:
        for threads, name in (("2 / 1", "1"), ("2 / 2", "2")):
            row = [_policy(shape), name]
            for day in (_FIRST, _SLOWER):
                memory = _side(day, threads, shape)
                share = records.times(_side(day, threads, shape, source="Reverb"), memory)
                row.append(f"{100 * share:.0f} %" + " **missed**" * (share < 0.95))
            row[2:2] = [f"{_per_s(_side(_FIRST, threads, shape)):.1f}"]
            rows.append(row)
    return tables.table(
        ["Policy", "Threads", "steps/s from memory", "from Reverb, first day", "slower day"], rows
    )


def _precision_table() -> str:
    rows = []
    for shape in _SHAPES:
        for threads, name in (("1 / 1", "1"), ("2 / 2", "2")):
            def side(
                precision: str, optimizer: str, day: str = _FIRST,
                threads: str = threads, shape: str = shape,
            ) -> Mapping[str, Any]:
                return _side(day, threads, shape, precision=precision, optimizer=optimizer)

            reference = side("float32", "Sonnet")
            rows.append([
                _policy(shape), name, f"{_per_s(reference):.1f}",
                f"{records.times(side('float32', 'fused'), reference):.2f}",
                f"{records.times(side('bfloat16', 'Sonnet'), reference):.2f}",
                f"{records.times(side('bfloat16', 'fused'), reference):.2f}",
            ])
    return tables.table(
        ["Policy", "Threads", "steps/s: fp32, Acme's optimizer", "times as fast: fp32 fused",
         "bfloat16", "bfloat16 fused"],
        rows,
    )


def _learner_targets() -> str:
    def gains(day: str, threads: str) -> tuple[float, float]:
        def side(precision: str, optimizer: str) -> Mapping[str, Any]:
            return _side(day, threads, _SHAPES[0], precision=precision, optimizer=optimizer)

        reference = side("float32", "Sonnet")
        return (
            records.times(side("bfloat16", "Sonnet"), reference),
            records.times(side("bfloat16", "fused"), reference),
        )

    first, slower = gains(_FIRST, "1 / 1"), gains(_SLOWER, "1 / 1")
    rows = [
        [name, f"{target}x", f"{one:.2f}x", f"{other:.2f}x",
         verdict(max(one, other) >= target)]
        for name, target, one, other in (
            ("bfloat16 against fp32", 1.8, first[0], slower[0]),
            ("bfloat16 with the fused optimizer against fp32", 2.5, first[1], slower[1]),
        )
    ]
    return tables.table(
        ["Learner's step, 3x2048, batch 256, one thread", "Target (on AMX)", "First day",
         "Slower day", "Verdict"], rows,
    )


def _peak(precision: str) -> float:
    """Returns the FLOP/s of large matrix products on one core."""
    return float(records.load("learner")["1 / 1"]["peak_flop_per_s"][precision])


@prose.wrapped
def _peaks() -> str:
    """Returns what bfloat16 can gain without AMX."""
    half, full = _peak("bfloat16"), _peak("float32")
    return (
        f"- **bfloat16 learner.** On one core, matrix products reach {half / 1e9:.0f} GFLOP/s in "
        f"bfloat16 and {full / 1e9:.0f} in fp32. That is {half / full:.1f} times, where AMX has "
        "8 times."
    )


@prose.wrapped
def _padding() -> str:
    """Returns why padding was not tried on a processor with AVX-512."""
    flop = learner_sides.Side(2048, 256).products_flop
    share = flop * _per_s(_side(_FIRST, "1 / 1", _SHAPES[0])) / _peak("float32")
    return (
        "- Padding was not tried on the Zen 5. Its fp32 step of 3x2048 makes "
        f"{100 * share:.0f} % of the core's peak, so little can be left to gain."
    )


@functools.cache
def _products() -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = records.load("zen3/learner_products")["seconds"]
    return found


def _product_gain(shape: str, kind: str) -> float:
    of = _products()[shape]
    return statistics.median(
        plain / other for plain, other in zip(of["TensorFlow's kernels"], of[kind], strict=True)
    )


def _products_table() -> str:
    kinds = ("TensorFlow's kernels", "oneDNN", "oneDNN, padded")
    return tables.table(
        ["Policy, batch", "TensorFlow's kernels, ms", "oneDNN, ms", "padded, ms",
         "times as fast: oneDNN", "padded"],
        [
            [
                shape, *(f"{1e3 * statistics.median(of[kind]):.1f}" for kind in kinds),
                *(f"{_product_gain(shape, kind):.2f}" for kind in kinds[1:]),
            ]
            for shape, of in _products().items()
        ],
    )


@prose.wrapped
def _answer() -> str:
    ours, original = _ms(_FIRST, _ONE, _INT8), _ms(_FIRST, _ONE, "int8, original (stand-in)")
    step = _per_s(_side(_FIRST, "1 / 1", _SHAPES[0]))
    return (
        f"**Answer.** On one core, new int8 weights reach an actor's first action in {ours:.0f} "
        f"ms, where a stand-in for the original takes {original:.0f} ms. "
        f"With the same 3x2048 policy, our learner makes {step:.1f} steps/s of 256 on one core."
    )


@prose.wrapped
def _products_answer() -> str:
    wide, narrow = "3x2048, 256", "3x256, 256"
    return (
        f"**Answer.** With 3x2048 and batches of 256, oneDNN makes the step "
        f"{_product_gain(wide, 'oneDNN'):.2f} times as fast, and padding "
        f"{_product_gain(wide, 'oneDNN, padded'):.2f} times. "
        f"With 3x256 oneDNN gains {_product_gain(narrow, 'oneDNN'):.2f} times, and padding does "
        "not apply."
    )


def _precision_experiment() -> str:
    rows = tables.csv_rows(
        tables.ACTORQ_RESULTS / "learner_precision" / "report" / "learner_precision.csv"
    )
    return tables.table(
        ["`--learner_precision`", "seeds", "final return", "learner steps/s"],
        [
            [
                f"`{row['value']}`", row["seeds"],
                f"{float(row['final_reward']):.1f} ± {float(row['final_reward_std']):.1f}",
                f"{float(row['learner_steps_per_s']):.1f}",
            ]
            for row in sorted(rows, key=lambda row: row["value"], reverse=True)
        ],
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "answer": _answer,
    "path_targets": _path_targets,
    "path": _path_table,
    "slower": _slower,
    "publishing": _publishing_table,
    "fed": _fed_table,
    "learner_targets": _learner_targets,
    "precisions": _precision_table,
    "peaks": _peaks,
    "padding": _padding,
    "products": _products_table,
    "products_answer": _products_answer,
    "precision_experiment": _precision_experiment,
}
