"""Simulates how many actors saturate a learner: on larger machines, over slower networks.

    python -m actorQ.experiments.cluster [--rates=FOLDER] [--bandwidths=none,1G,100M] [--out=FOLDER]

This is a simulation, not a measurement; `simulation` describes the model. It takes measured rates
of one actor at each precision and measured bytes of its messages; the user asks about learner
speeds and networks. Tables go to stdout and, with CSV and figures, to --out. Imports no framework
but matplotlib.
"""

import os

from absl import flags

from actorQ.core import cli
from actorQ.core import output
from actorQ.experiments.cluster import command_line
from actorQ.experiments.cluster import rates as cluster_rates
from actorQ.experiments.cluster import report
from actorQ.experiments.reports import reporting

NAME = "experiments.cluster"


def main(argv: list[str]) -> int:
    """Simulates, prints and writes; see `cli.run` for errors."""
    del argv
    values = flags.FLAGS
    names = command_line.pulls(values.pulls)
    rates = command_line.rates(values)
    plans = {
        name: command_line.plan(values, rates, name == command_line.BLOCKING) for name in names
    }
    output.make_folder(values.out)
    text = _assumptions(values, rates)
    rows: list[dict[str, object]] = []
    for name, plan in plans.items():
        study = report.Study(plan)
        answers = study.answers()
        words = _words(name)
        text += f"\n{words[0].upper()}{words[1:]}:\n\n{report.table(answers)}"
        rows += report.csv_rows(name, answers)
        title = f"Simulation: {words}"
        report.draw(study, title, os.path.join(values.out, f"cluster_{name}.png"))
    title = "# Actors that saturate a learner: a simulation\n\n"
    output.write_text(os.path.join(values.out, "cluster.md"), title + text)
    output.write_csv(os.path.join(values.out, "cluster.csv"), rows)
    print(f"{text}\nTables and figures: {values.out}", flush=True)
    return 0


def _words(pulls: str) -> str:
    if pulls == command_line.BLOCKING:
        return "actors stand still while they download (as the original's, which do at every look)"
    return "actors go on while they download (as this code's)"


def _assumptions(values: flags.FlagValues, rates: cluster_rates.Rates) -> str:
    measured = "; ".join(
        f"{reporting.precision_name(bits)} {rates.steps_per_s[bits]:.0f} steps/s and "
        f"{rates.message_bytes[bits]:,.0f} bytes"
        for bits in rates.precisions
    )
    speed = rates.learner_steps_per_s
    fastest = "" if speed is None else (
        f" The fastest learner of those runs made {speed:.1f} steps/s with batches of "
        f"{rates.batch_size}; it may have waited for data."
    )
    push = f"{values.push_period_s:g} s" if values.push_period_s else "learner step"
    given = command_line.by_precision("actor_steps_per_s", values.actor_steps_per_s)
    on_its_own = [
        "A measured actor shares its cache with a learner on the next core. On a machine of its "
        "own it is faster, most of all with fp32 (see --actor_steps_per_s)."
    ] if set(rates.precisions) - set(given) else []
    return reporting.bullets([
        "**This is a simulation**, not a measurement.",
        f"Taken from {rates.source}: steps of one actor on a core of its own, and bytes of its "
        f"weights: {measured}.{fastest}",
        f"Asked about: learners and networks of these speeds; batch {values.batch_size}, "
        f"{values.samples_per_insert:g} samples per insert, a look every "
        f"{values.actor_update_period} steps of an actor, new weights every {push}, "
        f"{values.insert_bytes:g} bytes for each insert, {values.latency_ms:g} ms latency of a "
        "look.",
        "Assumed of actors: each has a core of its own as fast as the measured one, and slows "
        "nobody down.",
        "Assumed of the learner: its speed does not depend on how many actors it serves.",
        "Assumed of the network: the link of the learner's host is the only bottleneck. Downloads "
        "share it equally, and inserts use the other direction. Weights are ready for actors as "
        "soon as they are published.",
        *on_its_own,
        f"Actors: the least number that makes {100 * report.SATURATED:.0f} % of what the "
        "learner wants (learner steps/s x batch / samples per insert).",
        f"'never: link': {values.max_actors} actors would do without a network, but not with this "
        "one. Then age is that with the least number (of those tried) that comes as close as any.",
        "Age: mean seconds since the weights in use were published, over actors and time.",
        "Where the link is the limit, a longer --actor_update_period or --push_period_s, or "
        "narrower weights, relieve it.",
    ])


if __name__ == "__main__":
    command_line.define_flags()
    cli.run(main, name=NAME)
