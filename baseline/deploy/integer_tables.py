"""The tables and files of `integer_benchmark`."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import os
import statistics
from typing import Any

from actorQ.core import errors
from actorQ.core import output
from baseline.agents import zoo_files
from baseline.deploy import integer_comparison

_HEADER = (
    "form", "file (bytes)", "weights (bytes)", "us", "speed", "as simulated", "as fp32", "return",
    "std",
)
_NOTE = (
    "As simulated, as fp32: share of the states with the same action (continuous: within 2 % of "
    "the range; deviations in shares of the range)."
)
SUMMARY = "integer"  # Name of the files about all agents.

Forms = Mapping[str, integer_comparison.Measured]


def report(
    algo: str,
    env: str,
    settings: integer_comparison.Settings,
    measured: Forms,
    out: str | None,
) -> None:
    """Prints an agent's table; with `out` writes it and all figures to integer_ALGO_ENV.*.

    Args:
      algo: of the agent.
      env: of the agent.
      settings: how it was measured.
      measured: form to figures.
      out: folder, made if missing, or None.

    Raises:
      errors.UserError: the folder cannot be written.
    """
    slowest = statistics.median(next(iter(measured.values())).seconds)
    rows = []
    for form, figures in measured.items():
        seconds = statistics.median(figures.seconds)
        rows.append([
            form,
            "" if figures.content is None else str(len(figures.content)),
            str(figures.weight_bytes),
            f"{1e6 * seconds:.1f}",
            f"{slowest / seconds:.2f}",
            "" if figures.simulated is None else str(figures.simulated),
            "" if figures.full_precision is None else str(figures.full_precision),
            f"{statistics.fmean(figures.returns):.2f}",
            f"{statistics.pstdev(figures.returns):.2f}",
        ])
    states = next(f.simulated.states for f in measured.values() if f.simulated is not None)
    text = (
        f"{algo} {env}: one observation on one thread, {states} states, {settings.episodes} "
        f"episodes\n\n{output.markdown_table(_HEADER, rows)}\n{_NOTE}\n"
    )
    record = {
        "settings": dataclasses.asdict(settings),
        "forms": {form: _plain(figures) for form, figures in measured.items()},
    }
    name = f"{SUMMARY}_{algo}_{zoo_files.file_name(env)}"
    output.write_measured("baseline.integer_benchmark", name, text, record, out)


def summarize(agents: Mapping[tuple[str, str], Forms], out: str | None) -> None:
    """Prints tables of all agents; with `out` writes them to integer.md.

    Args:
      agents: algorithm and environment to what was measured; at least one.
      out: folder, made if missing, or None.

    Raises:
      errors.UserError: the folder cannot be written.
    """
    first, *exported = next(iter(agents.values()))

    def table(
        title: str,
        forms: list[str],
        cell: Callable[[integer_comparison.Measured], float],
        style: str,
    ) -> str:
        rows = [
            [algo, env, *(format(cell(measured[form]), style) for form in forms)]
            for (algo, env), measured in agents.items()
        ]
        return f"{title}\n\n{output.markdown_table(['algo', 'env', *forms], rows)}"

    everything = [first, *exported]
    tables = [
        table(
            "States in which the action is that of the simulated form (continuous: within 2 % of "
            "the range), in %",
            exported, lambda form: 100 * form.simulated.alike, ".2f",
        ),
        table(
            "Microseconds for one observation on one thread",
            everything, lambda form: 1e6 * statistics.median(form.seconds), ".1f",
        ),
        table("Bytes of the file", exported, lambda form: len(form.content), "d"),
        table(
            "Mean return", everything, lambda form: statistics.fmean(form.returns), ".2f"
        ),
    ]
    output.write_measured("baseline.integer_benchmark", SUMMARY, "\n".join(tables), None, out)


def save_models(folder: str, name: str, measured: Forms) -> None:
    """Writes every form's file as FOLDER/NAME_FORM.onnx, without slashes in NAME.

    Raises:
      errors.UserError: the folder cannot be written.
    """
    output.make_folder(folder)
    name = zoo_files.file_name(name)
    for form, figures in measured.items():
        if figures.content is None:
            continue
        path = os.path.join(folder, f"{name}_{form.replace(' ', '_')}.onnx")
        try:
            with open(path, "wb") as file:
                file.write(figures.content)
        except OSError as error:
            raise errors.UserError(f"Cannot write {path}: {error.strerror}.") from None


def _plain(figures: integer_comparison.Measured) -> dict[str, Any]:
    """Returns a form's figures for JSON."""
    compared = {
        name: None if agreement is None else agreement._asdict()
        for name, agreement in (
            ("simulated", figures.simulated), ("full_precision", figures.full_precision)
        )
    }
    return {
        "file_bytes": None if figures.content is None else len(figures.content),
        "weight_bytes": figures.weight_bytes,
        "metadata": figures.metadata,
        "kernels": figures.kernels,
        **compared,
        "seconds": figures.seconds,
        "returns": figures.returns,
    }
