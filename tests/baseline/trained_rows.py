"""Rows of trainings as the QAT study would leave them, for the tests of its plots and tables."""

import numpy as np

from baseline.quantization import names
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from tests.baseline import sweep_rows

WIDTHS = tuple("8765432")
BOTH = "weights+activations"


def make_row(
    method,
    bits,
    returns,
    train_seed=0,
    algo="ppo",
    env="CartPole-v1",
    seeds="0,2,4",
    granularity="paper",
    rounding="nearest",
    train_steps=1000,
    **training,
):
    """Returns a row with given returns; `training` holds further columns of `TrainedRow`."""
    full = bits == names.FP32
    key = rows_lib.Key(
        algo, env, bits, "weights" if full else BOTH, granularity, rounding, seeds, len(returns)
    )
    size = 1000 if full else 1000 * int(bits) // 32
    row = rows_lib.measured(key, returns, **{**sweep_rows.WEIGHTS, "bytes": size})
    defaults = {
        "quant_delay": 500 if method == qat_rows.QAT else None,
        "ranges": {qat_rows.QAT: "frozen", qat_rows.PTQ: "calibrated-5"}.get(method, ""),
        "input_bits": None,
        "output_bits": None,
        "run": f"{env}_1",
    }
    if row.bits.isdecimal():
        defaults["input_bits"] = max(int(bits), 8)
    columns = {"train_seed": train_seed, "train_steps": train_steps, **defaults, **training}
    return qat_rows.trained(row, method=method, **columns)


def make_study(
    reward=100.0,
    qat=None,
    ptq=None,
    train_seeds=(0, 1, 2),
    spread=0.0,
    noise=0.0,
    episodes=6,
    **columns,
):
    """Returns rows of a study with known losses; rows of one training share its luck.

    Args:
      reward: Reward of the control of training seed 0.
      qat: QAT's loss of reward by width; by default, only 2 bits lose.
      ptq: PTQ's loss of reward by width; {}: no rows of PTQ.
      train_seeds: Seeds of the trainings.
      spread: Difference between the rewards of two successive training seeds.
      noise: Standard deviation between starts.
      episodes: Episodes of every row.
      **columns: Further arguments of `make_row`.
    """
    qat = {bits: 60.0 * (bits == "2") for bits in WIDTHS} if qat is None else qat
    ptq = {bits: 100.0 * 4.0 ** (2 - int(bits)) for bits in WIDTHS} if ptq is None else ptq
    starts = noise * np.random.default_rng(episodes).normal(size=episodes)
    rows = []
    for seed in train_seeds:
        returns = reward + spread * seed + starts
        own = dict(train_seed=seed, **columns)
        rows.append(make_row(qat_rows.CONTROL, names.FP32, returns, **_control(own)))
        for bits, loss in qat.items():
            rows.append(make_row(qat_rows.QAT, bits, returns - loss, **own))
        for bits, loss in ptq.items():
            rows.append(make_row(qat_rows.PTQ, bits, returns - loss, **_control(own)))
    return rows


def _control(columns):
    """Returns the columns that rows of QAT share with other rows."""
    own = ("quant_delay", "ranges", "input_bits", "output_bits", "widths")
    return {name: value for name, value in columns.items() if name not in own}
