"""Figures in the lists of the pages on time to reward, from runs, benchmarks and settings."""

from collections.abc import Sequence
import statistics

from actorQ.experiments import loading
from actorQ.experiments import results as results_lib
from actorQ.experiments import specification
from docs.generators import prose
from docs.generators import tables
from docs.generators.training import reward_runs

_MAIN = "time_to_reward"
_OTHER_SEEDS = (3, 4, 5)  # CartPole-v0's of the hours in which SB3 ran.


def _running_mean(result: results_lib.Result) -> float:
    """Returns the mean of a run's last ten evaluations, as the stop rule takes it."""
    return statistics.mean(result.measured.rewards.returns[-result.settings["stop_smoothing"]:])


@prose.wrapped
def _libraries() -> str:
    """Returns how the libraries' runs in the main table's settings compare with ours."""
    main = reward_runs.rows(_MAIN)
    balance, cartpole = main[reward_runs.CARTPOLE_BALANCE], main[reward_runs.CARTPOLE]
    acme, td3 = (balance[side] for side in (reward_runs.ACME, reward_runs.SB3))
    base = _steps_per_s(balance[reward_runs.FP32].results)
    of_hours = reward_runs.of_seeds(cartpole, _OTHER_SEEDS)[reward_runs.FP32]
    dqn = cartpole[reward_runs.SB3]
    part = _steps_per_s(dqn.results) / _steps_per_s(of_hours.results)
    (last,) = dqn.results
    return "\n".join([
        f"- They make {_steps_per_s(acme.results) / base:.2f} (Acme) and "
        f"{_steps_per_s(td3.results) / base:.2f} (TD3) of our fp32 actors' environment steps a "
        "second on cartpole_balance.",
        f"- On CartPole-v0 it is {part:.2f}, against seeds 3 to 5 of the same hours.",
        f"- On cartpole_balance the mean of ten was at {_running_mean(acme.results[0]):.0f} (Acme) "
        f"and {_running_mean(td3.results[0]):.0f} (TD3) when the 40 minutes were over. The last "
        "policies are worth the reward.",
        f"- On CartPole-v0 SB3's mean of ten was at {_running_mean(last):.0f} when the 25 minutes "
        f"were over, after {tables.number(last.measured.rewards.learner_steps[-1])} learner steps. "
        f"Its last policy is worth {reward_runs.reward(dqn)}.",
    ])


def _steps_per_s(results: Sequence[results_lib.Result]) -> float:
    return statistics.mean(result.measured.actor_steps_per_s or 0.0 for result in results)


@prose.wrapped
def _xeon() -> str:
    """Returns what is known of int8 and SB3's DQN on Acrobot-v1, in turn on one processor."""
    rows = reward_runs.rows("time_to_reward_xeon")[reward_runs.ACROBOT]
    int8, dqn = rows[reward_runs.INT8], rows[reward_runs.SB3]
    ours, theirs = int8.results[0], dqn.results[0]
    rate = (ours.measured.learner_steps_per_s or 0.0) / (theirs.measured.learner_steps_per_s or 1.0)
    main = reward_runs.rows(_MAIN)[reward_runs.ACROBOT][reward_runs.INT8]
    return "\n".join([
        f"- An int8 actor makes {reward_runs.mean(int8, 'actor_steps_per_s')} steps/s there, and "
        f"{reward_runs.mean(main, 'actor_steps_per_s')} on the machine of the main table.",
        f"- int8 made {rate:.2f} times SB3's learner steps a second there. It held the reward from "
        f"step {reward_runs.steps_by_seed(int8)} on, and SB3 from step "
        f"{reward_runs.steps_by_seed(dqn)} on.",
        f"- int8's last policy is worth {reward_runs.reward(int8)} there.",
    ])


@prose.wrapped
def _int4_of_4096() -> str:
    """Returns why int4 gains nothing over int8 with a policy of 3x4096."""
    rows = reward_runs.rows("time_to_reward_4096")[reward_runs.ACROBOT]
    fp32, int8, int4 = (
        rows[side] for side in (reward_runs.FP32, reward_runs.INT8, reward_runs.INT4)
    )
    actors = _steps_per_s(int4.results) / _steps_per_s(fp32.results)
    more = (reward_runs.held_from(int4.results[0]) or 0) - (
        reward_runs.held_from(int8.results[0]) or 0
    )
    rates = [reward_runs.mean(row, "learner_steps_per_s", 2) for row in (int4, int8)]
    return "\n".join([
        f"- Its actor makes {actors:.1f} times fp32's steps, of which the learner takes "
        f"{reward_runs.data_used(int4)}.",
        f"- So it learns no faster than with int8, at {rates[0]} steps/s against {rates[1]}.",
        f"- With this seed it needed {more:.0f} steps more, so that it gains nothing over int8 "
        "here.",
    ])


def _samples() -> str:
    """Returns the samples per insert and batches of the profile `laptop`."""
    common = loading.load_common()
    experiment = loading.load(_MAIN, common)
    runs = specification.expand(
        experiment, common, "laptop", seeds=[0], tasks=list(reward_runs.rows(_MAIN)),
        precisions=[8], peers=None,
    )
    every = common.profiles["laptop"].layer.settings
    sides = [("the profile `laptop`", every)] + [
        (specification.short_task(run.task), run.settings) for run in runs
    ]
    return tables.table(
        ["Task", "Samples per insert", "Batch"],
        [
            [name, f"{settings['samples_per_insert']:g}", str(settings["batch_size"])]
            for name, settings in sides
        ],
    )


def _two_cores() -> str:
    """Returns what learner and actors make on the two cores of the main table."""
    path = tables.ACTORQ_RESULTS / "benchmarks" / "end_to_end_3x2048.json"
    record = tables.read_json(path)
    one = {run["bits"]: run["rates"] for run in record["runs"] if run["actors"] == 1}

    def rate(bits: int, name: str) -> float:
        return statistics.median(found[name] for found in one[bits])

    steps = rate(8, "learner_steps_per_s")
    batch = 128
    return tables.table(
        ["Part", "Rate"],
        [
            [
                f"learner, batch {batch}",
                f"{steps:.1f} steps/s, {tables.number(round(batch * steps, -1))} samples/s",
            ],
            ["learner, batch 256, in trials", "about 10 steps/s, 2,560 samples/s"],
            ["the same with evaluations of cartpole_balance", "1,970 samples/s"],
            *(
                [
                    f"one {name} actor",
                    f"{tables.number(round(rate(bits, 'actor_steps_per_s'), -1))} transitions/s",
                ]
                for name, bits in (("fp32", 32), ("int8", 8))
            ),
        ],
        2,
    )


BLOCKS: dict[str, reward_runs.Block] = {
    "libraries": _libraries,
    "xeon": _xeon,
    "int4_of_4096": _int4_of_4096,
    "samples": _samples,
    "two_cores": _two_cores,
}
