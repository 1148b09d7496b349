"""Hand-written logs of runs, and a check of figures."""

import csv
import os

import numpy as np
from PIL import Image

from actorQ.core import config as config_lib
from actorQ.core import telemetry


def write_log(path, **columns):
    """Writes a log whose left-out columns are empty, as `RunLogger` does."""
    name = os.path.basename(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, telemetry.FIELDS[name], restval="")
        writer.writeheader()
        for values in zip(*columns.values(), strict=True):
            writer.writerow(dict(zip(columns, values, strict=True)))


def make_run(root, name, quantize=32, algorithm="dqn", **settings):
    folder = str(root / name)
    os.makedirs(folder)
    settings = {"taskstr": "gym,CartPole-v0", **settings}
    config_lib.RunConfig(quantize=quantize, logpath=folder, **settings).save(
        folder, algorithm=algorithm, machine={"processor": "a"}, git_commit="b"
    )
    return folder


def learner(folder, seconds, returns, actor_rate=100, learner_rate=10, evaluation=1.0):
    """Writes the learner's logs: each evaluation takes `evaluation` s."""
    write_log(
        f"{folder}/learner/evaluation.csv",
        seconds=seconds,
        episode_return=returns,
        evaluation_s=[evaluation * (i + 1) for i in range(len(seconds))],
    )
    write_log(
        f"{folder}/learner/train.csv",
        seconds=[5, 15],
        actor_steps=[50, 50 + 10 * actor_rate],
        learner_steps=[7, 7 + 10 * learner_rate],
        actor_steps_per_s=[actor_rate] * 2,
        learner_steps_per_s=[learner_rate] * 2,
    )
    return folder


def curve_run(root, name, quantize, times, returns, seed=0, **kwargs):
    return learner(make_run(root, name, quantize, seed=seed), times, returns, **kwargs)


def breakdown_run(root, name, quantize, scale=1.0, actors=2, **settings):
    """Actor i makes 1000 * i steps between first and last row, in steps of `scale` * 1 ms."""
    folder = make_run(root, name, quantize, n_actors=actors, **settings)
    for i in range(1, actors + 1):
        phases = {
            "environment_s": [9, 9.5, 9 + 0.1 * i],
            "inference_s": [50, 50, 50 + scale * i],
            "insert_s": [0, 0, 0.2 * i],
            "pull_s": [0, 0, 0.3 * i],
            "deserialize_s": [0, 0, 0.05 * i],
            "load_state_dict_s": [0, 0, 0.35 * i],
        }
        write_log(
            f"{folder}/actor_{i}/phases.csv",
            seconds=[10, 11, 20],
            actor_steps=[100, 200, 100 + 1000 * i],
            staleness_steps=[999, 4, 8],
            **phases,
        )
    write_log(
        f"{folder}/broadcaster/updates.csv",
        seconds=[1, 2, 3],
        convert_s=[0.5, 0.010, 0.020],
        message_bytes=[1000, 1000, 1000],
        fp32_bytes=[4000, 4000, 4000],
    )
    return folder


def check_figure(path):
    """Asserts a readable size, and that something is drawn in colour."""
    with Image.open(path) as image:
        assert image.width >= 1000 and image.height >= 500
        pixels = np.asarray(image.convert("RGB")).astype(int)
    coloured = (pixels.max(-1) - pixels.min(-1) > 40).mean()
    # A single point is little, but more than no colour.
    assert coloured > 5e-5, f"{path} shows nothing"
