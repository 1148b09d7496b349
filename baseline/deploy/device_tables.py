"""Writes the tables and files of `deploy_benchmark`."""

from collections.abc import Sequence
import dataclasses
import os
import statistics
from typing import Any

from actorQ.core import output
from actorQ.core import provenance
from baseline.agents import agent as agent_lib
from baseline.deploy import aarch64
from baseline.deploy import device_details
from baseline.deploy import device_files
from baseline.deploy import memory
from baseline.formats import names
from baseline.study import bars
from baseline.study import intervals
from baseline.study import paper
from baseline.tasks import navigation

STEM = "deployment"  # The files are deployment.md, .json, .csv and .png.
_PROGRAM = "baseline.deploy_benchmark"
_PAPER_BITS = 8
Row = dict[str, Any]
_HEADER = (
    "policy", "algo", "environment", "runtime", "fp32 us", "int us", "speed-up", "fp32 success",
    "int success", "change (95 %)", "fp32 file KB", "int file KB", "smaller", "fp32 memory KB",
    "int memory KB", "smaller", "as fp32",
)
_PAPER_COLUMNS = (
    "paper_policy", "paper_fp32_ms", "paper_int8_ms", "paper_speedup", "paper_fp32_success",
    "paper_int8_success",
)
_PAPER_HEADER = (
    "policy", "network", "fp32 ms", "int8 ms", "speed-up", "fp32 success", "int8 success",
    "our speed-up", "our fp32 success", "our int success",
)


def report(
    found: Sequence[tuple[agent_lib.Agent, device_files.Measured]],
    settings: device_files.Settings,
    out: str | None,
) -> None:
    """Prints the tables; with `out` writes them (.md), all figures (.json) and the rows (.csv).

    Args:
      found: Agents and their figures; at least one.
      settings: How they were measured.
      out: Folder, made if missing, or None.

    Raises:
      errors.UserError: The folder cannot be written.
    """
    rows = [
        row(agent, measured, file_format, settings)
        for agent, measured in found for file_format in settings.formats
    ]
    text = "\n".join([
        f"One observation on one thread of one core (medians of {settings.repeats} rounds, the "
        f"files taking turns); {settings.episodes} paired episodes; int: {settings.bits} bits\n",
        output.markdown_table(_HEADER, [_cells(each) for each in rows]),
        *device_details.calls_table(rows),
        *_paper_table([each for each in rows if each["paper_policy"] is not None]),
        *(device_details.arm_table(rows) if settings.arm is not None else []),
        *(f"- {note}" for note in _notes(settings)),
        "",
    ])
    arm = None if settings.arm is None else settings.arm._asdict()
    record = {
        "settings": {**dataclasses.asdict(settings), "arm": arm},
        "aarch64": _aarch64(settings),
        "rows": rows,
        "agents": [_plain(agent, measured) for agent, measured in found],
    }
    output.write_measured(_PROGRAM, STEM, text, record, out)
    if out:
        commit = provenance.git_commit()
        output.write_csv(
            os.path.join(out, f"{STEM}.csv"), [{**each, "commit": commit} for each in rows]
        )
        draw(rows, settings.bits, os.path.join(out, f"{STEM}.png"))


def draw(rows: Sequence[Row], bits: int, path: str) -> str:
    """Draws the speed-ups of the quantized files beside the paper's; returns `path`.

    Args:
      rows: Rows as `row` returns them.
      bits: Bits of the quantized files.
      path: File to write, a PNG.
    """
    integer = f"int{bits}"
    return bars.draw(
        {
            _label(each, rows): bars.Bar(each["speedup"], each["paper_speedup"], integer)
            for each in rows
        },
        f"Speed-up: fp32 latency / {integer} latency, same runtime",
        path,
    )


def _label(figures: Row, rows: Sequence[Row]) -> str:
    """Returns a row's name: a short one, but one that no other row has."""
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
    measured: device_files.Measured,
    file_format: str,
    settings: device_files.Settings,
) -> Row:
    """Returns the figures of one agent in one format, by the CSV's columns."""
    full, quantized = (
        measured.files[file_format, name] for name in (device_files.FP32, device_files.QUANTIZED)
    )
    change, nothing = measured.change(file_format), intervals.Interval(None, None, None)
    of_success, of_return = change, nothing
    if measured.success(device_files.FP32) is None:
        of_success, of_return = nothing, change
    return {
        "algo": agent.algo,
        "env": agent.env_id,
        "layers": "-".join(map(str, measured.layers)),
        "format": file_format,
        "bits": settings.bits,
        "scheme": settings.of_file(file_format, device_files.QUANTIZED).scheme,
        "granularity": names.granularity(file_format, settings.granularity),
        "episodes": settings.episodes,
        "fp32_us": 1e6 * full.median_s,
        "int_us": 1e6 * quantized.median_s,
        "speedup": full.median_s / quantized.median_s,
        "fp32_p99_us": _microseconds(full.p99_s),
        "int_p99_us": _microseconds(quantized.p99_s),
        "fp32_call_us": _microseconds(full.call_s),
        "int_call_us": _microseconds(quantized.call_s),
        "fp32_success": measured.success(device_files.FP32),
        "int_success": measured.success(file_format),
        "success_change": of_success.error,
        "success_change_low": of_success.low,
        "success_change_high": of_success.high,
        "fp32_return": _mean_return(measured, device_files.FP32),
        "int_return": _mean_return(measured, file_format),
        "return_change": of_return.error,
        "return_change_low": of_return.low,
        "return_change_high": of_return.high,
        "fp32_file_bytes": len(full.content),
        "int_file_bytes": len(quantized.content),
        "file_ratio": len(full.content) / len(quantized.content),
        "fp32_memory_bytes": full.resident_bytes,
        "int_memory_bytes": quantized.resident_bytes,
        "memory_ratio": _memory_ratio(full.resident_bytes, quantized.resident_bytes),
        "fp32_all_pages_bytes": full.all_pages_bytes,
        "int_all_pages_bytes": quantized.all_pages_bytes,
        "all_pages_ratio": _memory_ratio(full.all_pages_bytes, quantized.all_pages_bytes),
        "alike": quantized.agreements[device_files.ALIKE].alike,
        **_arm_figures("fp32", full),
        **_arm_figures("int", quantized),
        **_paper_figures(agent, measured.layers, settings.bits),
    }


def _paper_figures(agent: agent_lib.Agent, layers: tuple[int, ...], bits: int) -> Row:
    """Returns the paper's figures of the same layers, where task and bits are the paper's."""
    printed = paper.deployment(layers)
    if printed is None or agent.env_id != navigation.ENV_ID or bits != _PAPER_BITS:
        return dict.fromkeys(_PAPER_COLUMNS)
    return {
        "paper_policy": printed.name,
        "paper_fp32_ms": printed.fp32_ms,
        "paper_int8_ms": printed.int8_ms,
        "paper_speedup": printed.speedup,
        "paper_fp32_success": printed.fp32_success / 100,
        "paper_int8_success": printed.int8_success / 100,
    }


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1e6 * seconds


def _memory_ratio(full: int | None, quantized: int | None) -> float | None:
    """Returns how much smaller the memory is; None where it was not measured or is noise."""
    if full is None or quantized is None or min(full, quantized) < memory.NOISE_BYTES:
        return None
    return full / quantized


def _arm_figures(side: str, file: device_files.File) -> Row:
    arm = file.arm
    return {
        f"{side}_arm_states": None if arm is None else arm.alike.states,
        f"{side}_arm_alike": None if arm is None else arm.alike.alike,
        f"{side}_arm_largest_output": None if arm is None else arm.largest_output,
        f"{side}_arm_failure": file.arm_failure,
    }


def _mean_return(measured: device_files.Measured, side: str) -> float:
    return statistics.fmean(episode.episode_return for episode in measured.episodes[side])


def _cells(figures: Row) -> list[str]:
    if figures["success_change"] is None:
        sides = [f"return {figures[name]:.2f}" for name in ("fp32_return", "int_return")]
        change = _change(figures, "return_change", 1, 2)
    else:
        sides = [
            device_details.percent(figures[name]) for name in ("fp32_success", "int_success")
        ]
        change = _change(figures, "success_change", 100, 1)
    sizes = [figures[f"{side}_memory_bytes"] for side in ("fp32", "int")]
    ratio = figures["memory_ratio"]
    return [
        figures["layers"], figures["algo"], figures["env"],
        names.RUNTIMES[figures["format"]],
        f"{figures['fp32_us']:.1f}", f"{figures['int_us']:.1f}", f"{figures['speedup']:.2f}x",
        *sides, change,
        f"{figures['fp32_file_bytes'] / 1e3:.1f}", f"{figures['int_file_bytes'] / 1e3:.1f}",
        f"{figures['file_ratio']:.2f}x",
        *("" if size is None else f"{size / 1e3:.0f}" for size in sizes),
        "" if ratio is None else f"{ratio:.2f}x", device_details.percent(figures["alike"]),
    ]


def _change(figures: Row, name: str, scale: float, digits: int) -> str:
    """Returns a change with its interval, where there is one, for people."""
    values = [figures[f"{name}{end}"] for end in ("", "_low", "_high")]
    change, *ends = (f"{scale * value:+.{digits}f}" for value in values if value is not None)
    return f"{change} [{', '.join(ends)}]" if ends else change


def _paper_table(rows: Sequence[Row]) -> list[str]:
    """Returns the paper's rows of the networks that were measured, each followed by ours."""
    cells = [
        [
            figures["paper_policy"], figures["layers"], f"{figures['paper_fp32_ms']}",
            f"{figures['paper_int8_ms']}", f"{figures['paper_speedup']}x",
            f"{100 * figures['paper_fp32_success']:.0f} %",
            f"{100 * figures['paper_int8_success']:.0f} %",
            f"{figures['speedup']:.2f}x ({names.RUNTIMES[figures['format']]})",
            device_details.percent(figures["fp32_success"]),
            device_details.percent(figures["int_success"]),
        ]
        for figures in rows
    ]
    if not cells:
        return []
    return [
        f"The paper's figures (Raspberry Pi 3b, Air Learning; memory "
        f"{paper.DEPLOYMENT_MEMORY_RATIO:g}x smaller), and ours\n",
        output.markdown_table(_PAPER_HEADER, cells),
    ]


def _notes(settings: device_files.Settings) -> list[str]:
    notes = [
        "fp32 us: a file of the same runtime in fp32; fp32 success: the agent itself; both play "
        "the same starts. As fp32: states with the same action (continuous: within 2 % of the "
        "range).",
    ]
    if settings.memory_turns:
        notes.append(
            "memory: resident data of a fresh process that has loaded and played the file, and "
            "what it maps of the file (no pages of programs), less that with a policy of "
            f"{device_files.TINY} units (medians of {settings.memory_turns}); "
            f"below {memory.NOISE_BYTES / 1e3:.0f} KB it is noise and has no ratio."
        )
    notes.append(_aarch64(settings))
    return notes


def _aarch64(settings: device_files.Settings) -> str:
    if settings.arm is None:
        return aarch64.situation()
    versions = ", ".join(f"{name} {version}" for name, version in settings.arm.versions.items())
    return f"aarch64: played by a Python for ARM with {versions}; the table above says how far."


def _plain(agent: agent_lib.Agent, measured: device_files.Measured) -> Row:
    """Returns an agent's raw figures for JSON."""
    return {
        "path": str(agent.path),
        "algo": agent.algo,
        "env": agent.env_id,
        "layers": list(measured.layers),
        "files": {
            " ".join(key): {
                **file.figures(),
                "resident_bytes": file.resident_bytes,
                "all_pages_bytes": file.all_pages_bytes,
                "call_s": file.call_s,
                "arm": file.arm and {**file.arm._asdict(), "alike": file.arm.alike._asdict()},
                "arm_failure": file.arm_failure,
            }
            for key, file in measured.files.items()
        },
        "episodes": {
            side: {
                "returns": [round(episode.episode_return, 4) for episode in episodes],
                "lengths": [episode.length for episode in episodes],
                # 0 and 1 instead of words, which would be most of the file.
                "successes": [
                    None if episode.success is None else int(episode.success)
                    for episode in episodes
                ],
            }
            for side, episodes in measured.episodes.items()
        },
    }
