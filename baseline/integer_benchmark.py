"""Measures the integer forms of agents: size, latency, agreement and return.

    python -m baseline.integer_benchmark [ALGO ENV] [--folder F] [--out DIR]

Without ALGO and ENV it measures every agent in the folder, and prints tables of all. Latency is
that of one observation on one thread, the forms in turns. Actions are compared with the simulated
form's in states that the agent visits in full precision.
"""

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import lean_imports
from baseline.quantization import names
from baseline.study import measuring_flags

_NAME = "integer_benchmark"


def define_flags() -> None:
    """Defines the flags."""
    measuring_flags.define_folder()
    flags.DEFINE_string("out", None, "Folder that gets tables (.md) and all figures (.json).")
    flags.DEFINE_string("models", None, "Folder that gets the forms' .onnx files.")
    flags.DEFINE_integer("episodes", 10, "Episodes of every form, >= 1.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Seed of the environments, >= 0.", lower_bound=0)
    flags.DEFINE_integer("states", 5000, "States to compare at most, >= 1.", lower_bound=1)
    flags.DEFINE_integer("repeats", 7, "Rounds of latencies, >= 1.", lower_bound=1)
    measuring_flags.define_calibration()
    measuring_flags.define_granularity_of_linear()


def main(argv: list[str]) -> int:
    """Measures and prints; see `cli.run` for errors."""
    if len(argv) not in (1, 3):
        raise errors.UserError("takes two arguments, ALGO ENV (ppo CartPole-v1), or none.")
    cli.quiet_tensorflow()
    values = flags.FLAGS
    with lean_imports.without("tensorboard"):  # SB3 would load TensorFlow with it.
        from actorQ.core import timing

        timing.pin(1)  # Before the frameworks start their threads.
        from baseline.agents import finding
        from baseline.agents import hub
        from baseline.deploy import integer_forms
        from baseline.deploy import integer_tables
        from baseline.deploy import measuring
        from baseline.study import row_agents

    finding.set_threads()
    if len(argv) == 3:
        pairs = [(names.canonical_algo(argv[1]), argv[2])]
        if values.hub:
            hub.fetch(*pairs[0], values.folder)
    else:
        pairs = finding.found(values.folder)
        if not pairs:
            raise errors.UserError(f"There are no agents in {values.folder}: see --folder.")
    settings = measuring.Settings(
        values.granularity, values.calibration_episodes, values.episodes, values.seed,
        values.states, values.repeats,
    )
    measured, failures = {}, 0
    for algo, env in pairs:
        try:
            agent = row_agents.load_agent(algo, env, values.folder)
            forms = measured[algo, env] = integer_forms.measure(agent, settings)
        except errors.UserError as error:
            if len(pairs) == 1:
                raise
            failures += 1
            errors.report(_NAME, f"{algo} {env}: {error}")
            continue
        integer_tables.report(agent, settings, forms, values.out)
        if values.models:
            integer_tables.save_models(values.models, f"{algo}_{env}", forms)
    if len(measured) > 1:
        print()
        integer_tables.summarize(measured, values.out)
    return 1 if failures else 0


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(measuring_flags)  # For --help.
    cli.run(main, takes_arguments=True, name=_NAME)
