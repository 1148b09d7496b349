"""Stands in for `actorQ.launcher`: takes its flags and writes a run's logs at once.

What it does is told by the environment variable FAKE, JSON with any of:
  returns: evaluations, the same at every precision (default: 0, 50, 100, 100, 100)
  sleep: names of runs (folders) that wait for their end instead
  restart: names of runs one of whose processes is started again
  leave: names of runs that are killed, and leave their learner behind for some seconds
  full: names of runs whose result cannot be written; unreadable: ... whose log cannot be read
  late: names of runs that learn nothing before their last second
  fail: names of runs that end with an error line; diverge: ... with that of a diverged training
Each evaluation takes 1 s of 100 s (quantized) or 200 s (fp32). Appends its name to the file `made`.
"""

import csv
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from absl import flags

from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.launch import command_line
from actorQ.launch import processes

# A learner that ends in its own time after its launcher, and only then leaves the folder.
LEFT_BEHIND = """
import os, sys, time
from actorQ.core import files
run, made, name = sys.argv[1:]
launcher = os.getppid()
with files.run_folder(run):
    open(os.path.join(run, "pids"), "w").write(str(os.getpid()))
    while os.getppid() == launcher:
        time.sleep(0.1)
    time.sleep(5)
    open(made, "a").write(f"left-{name}\\n")
"""


def write_log(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, telemetry.FIELDS[path.name], restval="")
        writer.writeheader()
        for values in zip(*columns.values(), strict=True):
            writer.writerow(dict(zip(columns, values, strict=True)))


def write_logs(run, config, returns, late=False):
    step_s = 200 if config.quantize == 32 else 100
    finals = [returns[-1]] * config.final_eval_episodes
    count = len(returns)
    config.save(str(run), algorithm="d4pg", machine={"processor": "a"}, git_commit="b")
    seconds = [step_s * (i + 1) for i in range(count)]
    seconds += [seconds[-1] + 1] * len(finals)
    everything = [*returns, *finals]
    write_log(
        run / "learner" / telemetry.EVALUATION_CSV,
        seconds=seconds,
        learner_steps=[50 * min(i + 1, count) for i in range(len(everything))],
        actor_steps=[1000 * min(i + 1, count) for i in range(len(everything))],
        episode_return=everything,
        evaluation_s=list(range(1, len(everything) + 1)),
    )
    times = [1, *seconds[:count], seconds[-1]]
    learner_steps = [0, *(50 * (i + 1) for i in range(count)), 50 * count]
    actor_steps = [100, *(1000 * (i + 1) for i in range(count)), 1000 * count]
    if late:  # The last row is of the last evaluations.
        times, actor_steps = [*times, times[-1] + 60], [*actor_steps, actor_steps[-1]]
        learner_steps = [0] * (count + 1) + [3, 3]
    write_log(
        run / "learner" / telemetry.TRAIN_CSV,
        seconds=times, unix_time=times, learner_steps=learner_steps, actor_steps=actor_steps,
    )
    (run / "checkpoint" / telemetry.RESUME_FOLDER).mkdir(parents=True)
    (run / "checkpoint" / "policy.safetensors").write_text("weights")
    write_log(
        run / "broadcaster" / telemetry.UPDATES_CSV, seconds=[1, 2], convert_s=[1, 1],
        message_bytes=[100 * config.quantize_communication] * 2, fp32_bytes=[3200] * 2,
    )
    write_log(
        run / "actor_1" / telemetry.PHASES_CSV,
        seconds=[1, step_s, 2 * step_s], actor_steps=[0, 10, 20], pulls=[1, 3, 7],
        unix_time=[1, step_s, 2 * step_s],
        # Of 0, 50 and 100 learner steps, the first of which is before it learns.
        model_version=[0, 46, 100 - config.actor_update_period / 10],
        **{phase: [0, 1, 2] for phase in telemetry.PHASES},
    )
    if config.track_energy:
        now = time.strftime("%Y-%m-%dT%H:%M:%S")
        watts = {32: 1e-3, 8: 5e-4}.get(config.quantize, 1e-3)
        (run / "learner" / telemetry.EMISSIONS_CSV).write_text(
            "timestamp,duration,emissions,energy_consumed,cpu_energy,ram_energy,gpu_energy\n"
            f"{now},1.0,{watts / 2},{watts},{watts / 4},{watts / 2},{watts / 4}\n"
        )


def main():
    config_flags.define_flags()
    command_line.define_flags()
    flags.FLAGS(sys.argv)
    config = dataclasses.replace(config_flags.from_flags(), run_start_time=time.time())
    parent = pathlib.Path(flags.FLAGS.logdir)
    run = parent / flags.FLAGS.run_name
    orders = json.loads(os.environ.get("FAKE", "{}"))
    os.makedirs(run)  # As the real one: never twice.
    made = parent.parents[1] / "made"
    with open(made, "a", encoding="utf-8") as file:
        file.write(f"{parent.name}\n")
    if parent.name in orders.get("leave", ()):
        subprocess.Popen([sys.executable, "-c", LEFT_BEHIND, str(run), str(made), parent.name])
        while not (run / "pids").exists():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    if parent.name in orders.get("full", ()):
        (parent / "result.json").mkdir()
    if parent.name in orders.get("sleep", ()):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

        def end(*_):
            # Each thread of a killed runner may send one: two waits at once would never end.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child.kill()
            child.wait()
            os._exit(130)

        signal.signal(signal.SIGTERM, end)
        (run / "pids").write_text(f"{os.getpid()} {child.pid}")  # A test may kill it from now on.
        time.sleep(600)
    if parent.name in orders.get("fail", ()):
        raise SystemExit("launcher: error: no room left")
    if parent.name in orders.get("restart", ()):
        print(f"the learner was ended by SIGKILL (last words); {processes.STARTED_AGAIN}")
    write_logs(
        run, config, orders.get("returns", [0, 50, 100, 100, 100]),
        parent.name in orders.get("late", ()),
    )
    if parent.name in orders.get("unreadable", ()):
        log = run / "learner" / telemetry.TRAIN_CSV
        log.rename(log.with_suffix(".away"))
        log.mkdir()
    if parent.name in orders.get("diverge", ()):
        raise SystemExit(f"launcher: error: the learner: loss is nan: {errors.DIVERGED} and ends.")


if __name__ == "__main__":
    main()
