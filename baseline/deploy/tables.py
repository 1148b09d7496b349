"""The tables and files of `deploy_benchmark`."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import os
import statistics
from typing import Any

from actorQ.core import output
from actorQ.core import provenance
from baseline.agents import agent as agent_lib
from baseline.deploy import aarch64
from baseline.deploy import measuring
from baseline.deploy import resident_memory
from baseline.formats import names as deploy_formats
from baseline.study import bars
from baseline.study import intervals
from baseline.study import paper
from baseline.tasks import navigation

NAME = "deployment"
_PROGRAM = "baseline.deploy_benchmark"
_HEADER = (
    "policy", "algo", "environment", "runtime", "fp32 us", "int us", "speed-up", "fp32 success",
    "int success", "change (95 %)", "fp32 file KB", "int file KB", "smaller", "fp32 memory KB",
    "int memory KB", "smaller", "as fp32",
)
_ARM_HEADER = (
    "policy", "runtime", "fp32: same action", "largest difference", "int: same action",
    "largest difference",
)
_PAPER_HEADER = (
    "policy", "network", "fp32 ms", "int8 ms", "speed-up", "fp32 success", "int8 success",
    "our speed-up", "our fp32 success", "our int success",
)


def report(
    found: Sequence[tuple[agent_lib.Agent, measuring.Measured]],
    settings: measuring.Settings,
    out: str | None,
) -> None:
    """Prints the tables; with `out` writes them (.md), all figures (.json) and the rows (.csv).

    Args:
      found: agents and what they came to; at least one.
      settings: of the measurement.
      out: folder, made if missing, or None.

    Raises:
      errors.UserError: the folder cannot be written.
    """
    rows = [
        row(agent, measured, file_format, settings)
        for agent, measured in found for file_format in settings.formats
    ]
    text = "\n".join([
        f"One observation on one thread of one core (medians of {settings.repeats} rounds, the "
        f"files taking turns); {settings.episodes} paired episodes; int: {settings.bits} bits\n",
        output.markdown_table(_HEADER, [_cells(each) for each in rows]),
        *_paper_table(rows),
        *_arm_table(rows),
        *(f"- {note}" for note in _notes(settings)),
        "",
    ])
    record = {
        "settings": {
            **dataclasses.asdict(settings), "arm": settings.arm and settings.arm._asdict()
        },
        "aarch64": _aarch64(settings),
        "rows": rows,
        "agents": [_plain(agent, measured) for agent, measured in found],
    }
    output.write_measured(_PROGRAM, NAME, text, record, out)
    if out:
        commit = provenance.git_commit()
        output.write_csv(
            os.path.join(out, f"{NAME}.csv"), [{**each, "commit": commit} for each in rows]
        )
        bars.draw(
            {
                _label(each, rows): (each["speedup"], each["paper_speedup"]) for each in rows
            },
            f"fp32 latency / {settings.bits}-bit latency, same runtime",
            os.path.join(out, f"{NAME}.png"),
        )


def _label(figures: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the name of a row among others: short, but no two of them alike."""
    label = f"{figures['layers']}, {figures['format']}"
    alike = [
        other for other in rows
        if (other["layers"], other["format"]) == (figures["layers"], figures["format"])
    ]
    if len(alike) > 1:
        label += f", {figures['algo']} {figures['env']} ({alike.index(figures) + 1})"
    return label


def row(
    agent: agent_lib.Agent,
    measured: measuring.Measured,
    file_format: str,
    settings: measuring.Settings,
) -> dict[str, Any]:
    """Returns the figures of one agent in one format, by the CSV's columns."""
    full, quantized = (
        measured.files[file_format, name] for name in (measuring.FP32, measuring.QUANTIZED)
    )
    change, nothing = measured.change(file_format), intervals.Interval(None, None, None)
    of_success, of_return = change, nothing
    if measured.success(measuring.FP32) is None:
        of_success, of_return = nothing, change
    sizes = (full.resident_bytes, quantized.resident_bytes)
    telling = None not in sizes and min(sizes) >= resident_memory.NOISE_BYTES
    # Of other environments, or with other bits, the paper has no policies.
    printed = None
    if agent.env_id == navigation.ENV_ID and settings.bits == measuring.PAPER_BITS:
        printed = paper.deployment(measured.layers)
    return {
        "algo": agent.algo,
        "env": agent.env_id,
        "layers": "-".join(map(str, measured.layers)),
        "format": file_format,
        "bits": settings.bits,
        "scheme": settings.of_file(file_format, measuring.QUANTIZED).scheme,
        "granularity": settings.granularity,
        "episodes": settings.episodes,
        "fp32_us": 1e6 * full.median_s,
        "int_us": 1e6 * quantized.median_s,
        "speedup": full.median_s / quantized.median_s,
        "fp32_success": measured.success(measuring.FP32),
        "int_success": measured.success(file_format),
        "success_change": of_success.error,
        "success_change_low": of_success.low,
        "success_change_high": of_success.high,
        "fp32_return": _mean_return(measured, measuring.FP32),
        "int_return": _mean_return(measured, file_format),
        "return_change": of_return.error,
        "return_change_low": of_return.low,
        "return_change_high": of_return.high,
        "fp32_file_bytes": full.file_bytes,
        "int_file_bytes": quantized.file_bytes,
        "file_ratio": full.file_bytes / quantized.file_bytes,
        "fp32_memory_bytes": full.resident_bytes,
        "int_memory_bytes": quantized.resident_bytes,
        "memory_ratio": sizes[0] / sizes[1] if telling else None,
        "alike": quantized.alike.alike,
        **_arm_figures("fp32", full),
        **_arm_figures("int", quantized),
        "paper_policy": None if printed is None else printed.name,
        "paper_fp32_ms": None if printed is None else printed.fp32_ms,
        "paper_int8_ms": None if printed is None else printed.int8_ms,
        "paper_speedup": None if printed is None else printed.speedup,
        "paper_fp32_success": None if printed is None else printed.fp32_success / 100,
        "paper_int8_success": None if printed is None else printed.int8_success / 100,
    }


def _arm_figures(side: str, file: measuring.File) -> dict[str, Any]:
    arm = file.arm
    return {
        f"{side}_arm_states": None if arm is None else arm.alike.states,
        f"{side}_arm_alike": None if arm is None else arm.alike.alike,
        f"{side}_arm_largest_output": None if arm is None else arm.largest_output,
        f"{side}_arm_failure": file.arm_failure,
    }


def _mean_return(measured: measuring.Measured, side: str) -> float:
    return statistics.fmean(episode.episode_return for episode in measured.episodes[side])


def _cells(figures: Mapping[str, Any]) -> list[str]:
    if figures["success_change"] is None:
        sides = [f"return {figures[name]:.2f}" for name in ("fp32_return", "int_return")]
        change = _change(figures, "return_change", 1, 2)
    else:
        sides = [_percent(figures[name]) for name in ("fp32_success", "int_success")]
        change = _change(figures, "success_change", 100, 1)
    memory = [
        "" if figures[f"{side}_memory_bytes"] is None
        else f"{figures[f'{side}_memory_bytes'] / 1e3:.0f}"
        for side in ("fp32", "int")
    ]
    ratio = figures["memory_ratio"]
    memory.append("" if ratio is None else f"{ratio:.2f}x")
    return [
        figures["layers"], figures["algo"], figures["env"],
        deploy_formats.RUNTIMES[figures["format"]],
        f"{figures['fp32_us']:.1f}", f"{figures['int_us']:.1f}", f"{figures['speedup']:.2f}x",
        *sides, change,
        f"{figures['fp32_file_bytes'] / 1e3:.1f}", f"{figures['int_file_bytes'] / 1e3:.1f}",
        f"{figures['file_ratio']:.2f}x", *memory, _percent(figures["alike"]),
    ]


def _change(figures: Mapping[str, Any], name: str, scale: float, digits: int) -> str:
    """Returns a change with its interval, where there is one, for people."""
    values = [figures[f"{name}{end}"] for end in ("", "_low", "_high")]
    change, *ends = (f"{scale * value:+.{digits}f}" for value in values if value is not None)
    return f"{change} [{', '.join(ends)}]" if ends else change


def _paper_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the paper's rows of the networks that were measured, with ours behind."""
    cells = []
    for figures in rows:
        if figures["paper_policy"] is None:
            continue
        cells.append([
            figures["paper_policy"], figures["layers"], f"{figures['paper_fp32_ms']}",
            f"{figures['paper_int8_ms']}", f"{figures['paper_speedup']}x",
            f"{100 * figures['paper_fp32_success']:.0f} %",
            f"{100 * figures['paper_int8_success']:.0f} %",
            f"{figures['speedup']:.2f}x ({deploy_formats.RUNTIMES[figures['format']]})",
            _percent(figures["fp32_success"]), _percent(figures["int_success"]),
        ])
    if not cells:
        return []
    return [
        f"The paper's figures (Raspberry Pi 3b, Air Learning; memory "
        f"{paper.DEPLOYMENT_MEMORY_RATIO:g}x smaller), and ours\n",
        output.markdown_table(_PAPER_HEADER, cells),
    ]


def _arm_cells(figures: Mapping[str, Any], side: str) -> list[str]:
    if figures[f"{side}_arm_alike"] is None:
        return ["FAILS: " + figures[f"{side}_arm_failure"].replace("|", "/"), ""]
    return [
        f"{_percent(figures[f'{side}_arm_alike'])} of {figures[f'{side}_arm_states']}",
        f"{100 * figures[f'{side}_arm_largest_output']:.4f} %",
    ]


def _arm_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns how far the files compute on ARM what they compute here, where it was checked."""
    cells = [
        [
            figures["layers"], deploy_formats.RUNTIMES[figures["format"]],
            *(text for side in ("fp32", "int") for text in _arm_cells(figures, side)),
        ]
        for figures in rows
        if any(
            figures[f"{side}_arm_states"] is not None or figures[f"{side}_arm_failure"]
            for side in ("fp32", "int")
        )
    ]
    if not cells:
        return []
    return [
        "The same files under the runtimes' builds for 64-bit ARM: states with the same action as "
        "here, and the largest difference of an output, as a share of the outputs' range\n",
        output.markdown_table(_ARM_HEADER, cells),
    ]


def _notes(settings: measuring.Settings) -> list[str]:
    notes = [
        "fp32 us: a file of the same runtime in fp32; fp32 success: the agent itself; both play "
        "the same starts. As fp32: states with the same action (continuous: within 2 % of the "
        "range).",
    ]
    if settings.memory_turns:
        notes.append(
            "memory: resident data of a fresh process that has loaded and played the file, and "
            "what it maps of the file (no pages of programs), less that with a policy of "
            f"{measuring.TINY} units (medians of {settings.memory_turns}); "
            f"below {resident_memory.NOISE_BYTES / 1e3:.0f} KB noise, of which there is no ratio."
        )
    notes.append(_aarch64(settings))
    return notes


def _aarch64(settings: measuring.Settings) -> str:
    if settings.arm is None:
        return aarch64.situation()
    versions = ", ".join(f"{name} {version}" for name, version in settings.arm.versions.items())
    return f"aarch64: played by a Python for ARM with {versions}; the table above says how far."


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _plain(agent: agent_lib.Agent, measured: measuring.Measured) -> dict[str, Any]:
    """Returns an agent's raw figures for JSON."""
    return {
        "path": str(agent.path),
        "algo": agent.algo,
        "env": agent.env_id,
        "layers": list(measured.layers),
        "files": {
            " ".join(key): {
                **dataclasses.asdict(file),
                "alike": file.alike._asdict(),
                "arm": file.arm and {**file.arm._asdict(), "alike": file.arm.alike._asdict()},
            }
            for key, file in measured.files.items()
        },
        "episodes": {
            side: {
                "returns": [round(episode.episode_return, 4) for episode in episodes],
                "lengths": [episode.length for episode in episodes],
                # As 0 and 1: a thousand words for each side would be most of the file.
                "successes": [
                    None if episode.success is None else int(episode.success)
                    for episode in episodes
                ],
            }
            for side, episodes in measured.episodes.items()
        },
    }
