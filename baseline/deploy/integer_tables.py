"""Writes the tables and files of `integer_benchmark` and `qat_integer`."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import os
import statistics
from typing import Any

from actorQ.core import files
from actorQ.core import output
from baseline.agents import agent as agent_lib
from baseline.agents import zoo_files
from baseline.deploy import integer_forms
from baseline.deploy import measuring

SUMMARY = "integer"  # Stem of the files about all agents.
_PROGRAM = "baseline.integer_benchmark"
_HEADER = (
    "form", "file (bytes)", "weights (bytes)", "us", "speed", "as simulated", "as fp32", "return",
    "std",
)
_NOTE = (
    "As simulated, as fp32: share of the states with the same action (continuous: within 2 % of "
    "the range; deviations in shares of the range)."
)

def report(
    agent: agent_lib.Agent,
    settings: measuring.Settings,
    forms: Mapping[str, measuring.Form],
    out: str | None,
) -> None:
    """Prints an agent's forms; with `out` writes them and all figures to integer_ALGO_ENV.*.

    Args:
      agent: The agent.
      settings: How it was measured.
      forms: Its measured forms, torch's first.
      out: Folder, made if missing, or None.

    Raises:
      errors.UserError: The folder cannot be written.
    """
    slowest = next(iter(forms.values())).median_s
    cells = [
        [
            name,
            "" if form.file_bytes is None else str(form.file_bytes),
            str(form.facts["weight_bytes"]),
            f"{1e6 * form.median_s:.1f}",
            f"{slowest / form.median_s:.2f}",
            *(str(form.agreements.get(reference, "")) for reference in integer_forms.REFERENCES),
            f"{statistics.fmean(form.returns):.2f}",
            f"{statistics.pstdev(form.returns):.2f}",
        ]
        for name, form in forms.items()
    ]
    states = next(
        found.states for form in forms.values() for found in form.agreements.values()
    )
    text = (
        f"{agent.algo} {agent.env_id}: one observation on one thread, {states} states, "
        f"{settings.episodes} episodes\n\n"
        f"{output.markdown_table(_HEADER, cells)}\n{_NOTE}\n"
    )
    record = {
        "settings": dataclasses.asdict(settings),
        "forms": {
            name: {
                **dict.fromkeys(integer_forms.REFERENCES), **form.figures(),
                "returns": form.returns,
            }
            for name, form in forms.items()
        },
    }
    stem = f"{SUMMARY}_{agent.algo}_{zoo_files.file_name(agent.env_id)}"
    output.write_measured(_PROGRAM, stem, text, record, out)


def summarize(
    agents: Mapping[tuple[str, str], Mapping[str, measuring.Form]], out: str | None
) -> None:
    """Prints tables of all agents' forms; with `out` writes them to integer.md.

    Args:
      agents: Measured forms by algorithm and environment; at least one agent's.
      out: Folder, made if missing, or None.

    Raises:
      errors.UserError: The folder cannot be written.
    """
    first, *exported = next(iter(agents.values()))

    def table(
        title: str, names_of_forms: list[str], cell: Callable[[measuring.Form], str]
    ) -> str:
        rows = [
            [algo, env, *(cell(forms[name]) for name in names_of_forms)]
            for (algo, env), forms in agents.items()
        ]
        return f"{title}\n\n{output.markdown_table(['algo', 'env', *names_of_forms], rows)}"

    every = [first, *exported]
    tables = [
        table(
            "States in which the action is that of the simulated form (continuous: within 2 % of "
            "the range), in %",
            exported, lambda form: f"{100 * form.agreements[integer_forms.SIMULATED].alike:.2f}",
        ),
        table(
            "Microseconds for one observation on one thread",
            every, lambda form: f"{1e6 * form.median_s:.1f}",
        ),
        table("Bytes of the file", exported, lambda form: str(form.file_bytes)),
        table("Mean return", every, lambda form: f"{statistics.fmean(form.returns):.2f}"),
    ]
    output.write_measured(_PROGRAM, SUMMARY, "\n".join(tables), None, out)


def save_models(folder: str, stem: str, forms: Mapping[str, measuring.Form]) -> None:
    """Writes every form's file as FOLDER/STEM_FORM.onnx, without slashes in STEM.

    Raises:
      errors.UserError: The folder cannot be written.
    """
    output.make_folder(folder)
    for name, form in forms.items():
        if form.content:
            file_name = f"{zoo_files.file_name(stem)}_{name.replace(' ', '_')}.onnx"
            files.write(os.path.join(folder, file_name), form.content)


def trained_text(found: integer_forms.Trained) -> str:
    """Returns what `qat_integer` prints of an agent's forms: a line for each, and their sizes."""
    lines = []
    for name, form in found.forms.items():
        mean_return = statistics.fmean(form.returns)
        line = f"{name:24} return {mean_return:9.2f}, {1e6 * form.median_s:7.1f} us"
        if integer_forms.AGREEMENT in form.agreements:
            alike = form.agreements[integer_forms.AGREEMENT]
            line += f", {form.file_bytes} bytes, alike in {alike}"
        lines.append(line)
    if not lines:
        return f"Parameters, packed: {found.packed_bytes} bytes"
    lines.append(f"{found.states} visited states; parameters, packed: {found.packed_bytes} bytes.")
    return "\n".join(lines)


def trained_record(
    agent: agent_lib.Agent, settings: measuring.Settings, found: integer_forms.Trained
) -> dict[str, Any]:
    """Returns all figures of an agent's forms, for JSON."""
    forms: dict[str, dict[str, Any]] = {}
    for name, form in found.forms.items():
        forms[name] = {integer_forms.AGREEMENT: None, **form.figures(), "returns": form.returns}
        if alike := form.agreements.get(integer_forms.AGREEMENT):
            forms[name][integer_forms.AGREEMENT]["holds"] = alike.holds
    return {
        "settings": {
            "episodes": settings.episodes, "seed": settings.seed, "states": settings.states,
            "rounds": settings.repeats,
        },
        "agent": str(agent.path),
        "algo": agent.algo,
        "env": agent.env_id,
        "bits": found.bits,
        "packed_bytes": found.packed_bytes,
        "forms": forms,
    }
