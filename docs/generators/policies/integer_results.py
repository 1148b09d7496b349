"""Blocks of results/integers.md: agents as ONNX and TFLite files that compute with integers."""

from collections.abc import Callable
from collections.abc import Mapping
import functools
import statistics
from typing import Any

import numpy as np

from baseline.study import sweeps as sweeps_lib
from docs.generators import tables

_FOLDER = tables.BASELINE_RESULTS / "integer"
_QAT_FOLDER = tables.BASELINE_RESULTS / "qat" / "integer"
_BREAKOUT = ("ppo", "BreakoutNoFrameskip-v4")
_INT8 = "ORT int8"
_FORMS = {
    "ORT fp32": "fp32", "ORT fp16 weights": "fp16 weights", _INT8: "int8, calibrated",
    "ORT int8 dynamic": "int8, ranges on the fly", "ORT int4": "int4 weights",
}
# Agents of four sizes of networks.
_NETWORKS = {
    ("ppo", "CartPole-v1"): "2x64 (PPO CartPole)",
    ("dqn", "LunarLander-v2"): "2x256 (DQN LunarLander)",
    ("ddpg", "Pendulum-v1"): "400, 300 (DDPG Pendulum)",
    _BREAKOUT: "NatureCNN (our PPO Breakout)",
}
_QAT_NETWORKS = {
    ("ppo", "CartPole-v1"): "2x64 (PPO CartPole)",
    ("dqn", "CartPole-v1"): "2x256 (DQN CartPole)",
    ("ddpg", "MountainCarContinuous-v0"): "400, 300 (DDPG MountainCarContinuous)",
}
_ONNX, _TFLITE = "integers, ONNX Runtime", "integers, TFLite"


@functools.cache
def _forms() -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the measured forms of every agent."""
    found = {}
    for path in sorted(_FOLDER.glob("integer_*.json")):
        algo, env = path.stem.removeprefix("integer_").split("_", 1)
        found[algo, env] = tables.read_json(path)["forms"]
    return found


def _zoo() -> dict[tuple[str, str], dict[str, Any]]:
    return {pair: forms for pair, forms in _forms().items() if pair != _BREAKOUT}


def _alike(form: str) -> list[float]:
    """Returns the share of states with the simulated form's action, for the zoo's agents."""
    return [forms[form]["simulated"]["alike"] for forms in _zoo().values()]


def lowest_agreement() -> float:
    """Returns the lowest share of the calibrated 8-bit files of the zoo's agents."""
    return min(_alike(_INT8))


def breakout_agreement() -> float:
    """Returns that share of our Breakout agent."""
    return float(_forms()[_BREAKOUT][_INT8]["simulated"]["alike"])


def states() -> int:
    """Returns the number of states in which the zoo's agents were compared."""
    return sum(forms[_INT8]["simulated"]["states"] for forms in _zoo().values())


def answer() -> str:
    """Returns the answer of the page."""
    return (
        f"**Answer.** The calibrated 8-bit file takes the simulated form's action in at least\n"
        f"{100 * lowest_agreement():.2f} % of each agent's visited states. From 2x256 on, files "
        "shrink to about a\nquarter and become faster."
    )


def agreement() -> str:
    """Returns how often each form takes the simulated form's action."""
    rows = []
    for form, name in _FORMS.items():
        shares = _alike(form)
        most = 100 * max(shares)
        rows.append([
            name, f"{100 * min(shares):.2f} %", f"{most:.2f} %",
            f"{sum(share >= 0.99 for share in shares)} of {len(shares)}",
            f"{100 * _forms()[_BREAKOUT][form]['simulated']['alike']:.2f} %",
        ])
    head = ["Form, on ONNX Runtime", "lowest of the zoo's agents", "highest",
            "agents at 99 % or more", "our Breakout agent"]
    return tables.table(head, rows)


def facts() -> str:
    """Returns the number of compared states, and deviations of continuous actions."""
    largest = max(
        forms[_INT8]["simulated"]["largest"] or 0.0 for forms in _zoo().values()
    )
    breakout = _forms()[_BREAKOUT]
    played, full = (breakout[form]["returns"][0] for form in (_INT8, "torch fp32"))
    count = tables.number(breakout[_INT8]["simulated"]["states"])
    return (
        f"- The zoo's {len(_zoo())} agents were compared in {tables.number(states())} states.\n"
        f"- Continuous actions of the calibrated 8-bit files differ by at most "
        f"{100 * largest:.2f} % of their range.\n"
        f"- Our Breakout agent was compared in {count} states, one game.\n"
        f"  Its 8-bit file scored {played:.0f}, where fp32 scores {full:.0f}."
    )


def latency() -> str:
    """Returns time and size of the forms for four sizes of networks."""
    rows = []
    for pair, name in _NETWORKS.items():
        forms = _forms()[pair]
        names = ("torch fp32", "ORT fp32", _INT8, "ORT int8 dynamic", "ORT int4")
        times = [f"{_microseconds(forms[form]):.1f}" for form in names]
        sizes = [
            _kilobytes(forms[form]["file_bytes"])
            for form in ("ORT fp32", _INT8, "ORT int4")
        ]
        rows.append([name, *times, *sizes])
    head = ["Network", "torch fp32, µs", "ONNX Runtime fp32, µs", "int8, µs",
            "int8, ranges on the fly, µs", "int4 weights, µs", "fp32 file, kB", "int8, kB",
            "int4, kB"]
    return tables.table(head, rows)


def _microseconds(form: Mapping[str, Any]) -> float:
    return 1e6 * statistics.median(form["seconds"])


def _kilobytes(size: int) -> str:
    """Returns a size in kB to one decimal; halves are rounded up."""
    return tables.number((size + 50) // 100 / 10, 1)


def agents() -> str:
    """Returns a row for each of the zoo's agents: agreement, and mean return of 10 episodes."""
    rows = []
    for (algo, env), forms in _zoo().items():
        shares = [f"{100 * forms[form]['simulated']['alike']:.2f}" for form in
                  (_INT8, "ORT int8 dynamic", "ORT int4")]
        means = [tables.number(statistics.mean(forms[form]["returns"]), 1) for form in
                 ("torch fp32", _INT8, "ORT int4")]
        rows.append([f"{algo.upper()} {sweeps_lib.shown_env(env)}", *shares, *means])
    head = ["Agent", "int8, %", "int8 on the fly, %", "int4 weights, %", "return: fp32", "int8",
            "int4 weights"]
    return tables.table(head, rows)


@functools.cache
def _trained() -> dict[tuple[str, str], Any]:
    found = {}
    for path in sorted(_QAT_FOLDER.glob("*.json")):
        measured = tables.read_json(path)
        found[measured["algo"], measured["env"]] = measured
    return found


def trained() -> str:
    """Returns time and size of agents of quantization-aware training, as integers."""
    sizes = _packed()
    rows = []
    for pair, name in _QAT_NETWORKS.items():
        forms = _trained()[pair]["forms"]
        times = [
            f"{_microseconds(forms[form]):.1f}"
            for form in ("fake-quantized, torch", _ONNX, _TFLITE)
        ]
        files = [_kilobytes(forms[form]["file_bytes"]) for form in (_ONNX, _TFLITE)]
        packed = [_kilobytes(sizes[(*pair, bits)]) for bits in ("fp32", "8", "4", "2")]
        rows.append([name, *times, *files, *packed])
    head = ["Network", "torch, fake-quantized, µs", "ONNX Runtime, µs", "TFLite, µs",
            ".onnx, kB", ".tflite, kB", "parameters in fp32, kB", "8 bits, packed, kB",
            "4 bits, kB", "2 bits, kB"]
    return tables.table(head, rows)


def _packed() -> dict[tuple[str, str, str], int]:
    """Returns the bytes of parameters by algorithm, environment and width."""
    return {
        (row["algo"], row["env"], row["bits"]): int(row["bytes"])
        for row in tables.csv_rows(tables.BASELINE_RESULTS / "qat" / "qat.csv")
        if row["method"] in ("control", "qat")
    }


def trained_facts() -> str:
    """Returns how far the integer forms of trained agents agree."""
    lowest, largest, same = 1.0, 0.0, True
    for measured in _trained().values():
        forms = measured["forms"]
        for name in (_ONNX, _TFLITE):
            agreed = forms[name]["agreement"]
            lowest = min(lowest, agreed["alike"])
            largest = max(largest, agreed["largest"] or 0.0)
            returns = forms["fake-quantized, torch"]["returns"]
            same &= bool(np.allclose(forms[name]["returns"], returns, rtol=1e-6))
    equal = "the same" if same else "not all the same"
    return (
        f"- Both forms take the fake-quantized policy's action in at least {100 * lowest:g} % of "
        f"the visited states.\n"
        f"- Continuous actions differ by at most {100 * largest:.2f} % of their range.\n"
        f"- The returns of the episodes are {equal}."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "answer": answer, "agreement": agreement, "facts": facts, "latency": latency,
    "agents": agents, "trained": trained, "trained_facts": trained_facts,
}
