"""The integer form of one agent: size, latency, agreement with the simulated form, and return.

    python -m baseline.integer_benchmark ALGO ENV [--folder F] [--out DIR]

Latency is that of one observation on one thread, the forms taking turns. States are those that the
agent visits in full precision.
"""

from collections.abc import Mapping
import json
import os
import statistics
import sys
import time
from typing import Any

from absl import flags

from actorQ import cli
from actorQ import errors
from actorQ import lean_imports
from actorQ import provenance
from baseline import measuring_flags
from baseline import results

_HEADER = (
    "form", "file (bytes)", "weights (bytes)", "us", "speed", "as simulated", "as fp32", "return",
    "std",
)


def define_flags() -> None:
    """Defines the flags."""
    measuring_flags.define_folder()
    flags.DEFINE_string("out", None, "Folder that gets integer_ALGO_ENV.md and .json.")
    flags.DEFINE_string("models", None, "Folder that gets the forms' .onnx files.")
    flags.DEFINE_integer("episodes", 10, "Episodes of every form, >= 1.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Seed of the environments, >= 0.", lower_bound=0)
    flags.DEFINE_integer("states", 5000, "States to compare at most, >= 1.", lower_bound=1)
    flags.DEFINE_integer("repeats", 7, "Rounds of latencies, >= 1.", lower_bound=1)
    flags.DEFINE_integer(
        "calibration_episodes", 5, "Episodes that find activations' ranges, >= 1.", lower_bound=1
    )
    flags.DEFINE_enum(
        "granularity", results.GRANULARITIES[0], list(results.GRANULARITIES),
        "Of linear layers' weights: paper, a scale for each layer; channel, for each output.",
    )


def main(argv: list[str]) -> int:
    """Measures and prints; see `cli.run` for errors."""
    if len(argv) != 3:
        raise errors.UserError("takes two arguments: ALGO ENV, for example ppo CartPole-v1.")
    _, algo, env = argv
    cli.quiet_tensorflow()
    values = flags.FLAGS
    with lean_imports.without("tensorboard"):  # Which SB3 would load TensorFlow for.
        from actorQ.benchmarks import common

        common.pin(1)  # Before the frameworks start their threads.
        from baseline import agents
        from baseline import integer_comparison
        from baseline import measuring

    agents.set_threads()
    algo = agents.canonical_algo(algo)
    if values.hub:
        agents.fetch(algo, env, values.folder)
    settings = integer_comparison.Settings(
        values.granularity, values.calibration_episodes, values.episodes, values.seed,
        values.states, values.repeats,
    )
    measured = integer_comparison.measure(
        measuring.load_agent(algo, env, values.folder), settings
    )
    report(f"integer_{algo}_{env}", f"{algo} {env}", settings, measured, values.out)
    if values.models:
        save_models(values.models, f"{algo}_{env}", measured)
    return 0


def report(
    name: str, title: str, settings: Any, measured: Mapping[str, Any], out: str | None
) -> None:
    """Prints the table; with `out` writes it to NAME.md and all figures to NAME.json.

    Args:
      name: of the files.
      title: of the table.
      settings: an `integer_comparison.Settings`.
      measured: form to `integer_comparison.Measured`.
      out: folder, made if missing, or None.

    Raises:
      errors.UserError: the folder cannot be written.
    """
    import dataclasses

    from actorQ.scripts import curves

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
        f"{title}: one observation on one thread, {states} states, {settings.episodes} episodes\n\n"
        f"{curves.markdown_table(_HEADER, rows)}"
        "\nAs simulated, as fp32: share of the states with the same action (continuous: within "
        "2 % of the range; deviations in shares of the range).\n"
    )
    sys.stdout.write(text)
    if not out:
        return
    facts = {
        "command": "python -m baseline.integer_benchmark " + " ".join(sys.argv[1:]),
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": provenance.machine(),
        "git_commit": provenance.git_commit(),
    }
    footer = (
        f"\n`{facts['command']}` on {facts['machine']['processor']}, commit "
        f"{facts['git_commit'][:12]}, {facts['date']}.\n"
    )
    record = {
        **facts,
        "settings": dataclasses.asdict(settings),
        "forms": {form: _plain(figures) for form, figures in measured.items()},
    }
    curves.make_folder(out)
    curves.write_text(os.path.join(out, f"{name}.md"), text + footer)
    curves.write_text(os.path.join(out, f"{name}.json"), json.dumps(record, indent=1) + "\n")


def save_models(folder: str, name: str, measured: Mapping[str, Any]) -> None:
    """Writes every form's file as FOLDER/NAME_FORM.onnx.

    Raises:
      errors.UserError: the folder cannot be written.
    """
    from actorQ.scripts import curves

    curves.make_folder(folder)
    for form, figures in measured.items():
        if figures.content is None:
            continue
        path = os.path.join(folder, f"{name}_{form.replace(' ', '_')}.onnx")
        try:
            with open(path, "wb") as file:
                file.write(figures.content)
        except OSError as error:
            raise errors.UserError(f"Cannot write {path}: {error.strerror}.") from None


def _plain(figures: Any) -> dict[str, Any]:
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


if __name__ == "__main__":
    define_flags()
    cli.run(main, takes_arguments=True, name="integer_benchmark")
