"""Trains one agent, or several, at many widths and seeds, over all cores, and evaluates them.

    python -m baseline.qat_sweep ALGO ENV [ALGO ENV ...] [--bits 32,8,7,6,5,4,3,2]

After the trainings, each control (32 bits) is quantized without training to the same widths,
weights and activations. All rows go to FOLDER/qat.csv, which `baseline.collate --qat` draws. What
is there already is not made again, and runs that were interrupted go on: the same command carries
on.
`qat_benchmark.sh` calls this.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import logging as std_logging
import os
import pathlib
import signal
import time
from typing import TYPE_CHECKING
from typing import Any

from absl import flags
from absl import logging

from actorQ.core import cli
from actorQ.core import errors
from baseline.qat import runs
from baseline.qat import training as qat
from baseline.quantization import names
from baseline.study import parallel
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from baseline.train import settings as training_settings

if TYPE_CHECKING:
    from baseline.qat import model as qat_model

DEFAULT_BITS = "32,8,7,6,5,4,3,2"
DEFAULT_TRAIN_SEEDS = "0,1,2"
# A well-trained policy hardly leaves the middle of its task: over 5 episodes CartPole's ranges come
# out so narrow that other starts are clipped, and the policy loses a fifth of its return by that.
DEFAULT_CALIBRATION_EPISODES = 30
PTQ_FOLDER = "ptq"  # In a control's run folder.
SAVING_PATIENCE_S = 120.0  # With interrupted trainings: a replay buffer may be a gigabyte.
_PROGRESS_MODULE = "training_callbacks"
_stop_signals: list[int] = []  # That a worker has got while it trained.


@dataclasses.dataclass(frozen=True)
class Job:
    """One training and its evaluation.

    Attributes:
      settings: what to train; steps, seed and environment's name are filled in, and the folder is
        that of the width.
      qat: how to quantize, with its delay.
      csv_path: gets the row.
      seeds: of the evaluation's environments.
      episodes: of the evaluation, for each seed.
    """

    settings: training_settings.TrainSettings
    qat: "qat_model.QatSettings"
    csv_path: str
    seeds: tuple[int, ...]
    episodes: int

    @property
    def name(self) -> str:
        """For people."""
        width = names.FP32 if self.qat.control else f"{self.qat.bits} bits"
        settings = self.settings
        return f"{settings.algo} {settings.env} {width:>6} seed {settings.seed}"

    @property
    def columns(self) -> dict[str, Any]:
        """What its row says of the training; but the run."""
        control = self.qat.control
        output = self.qat.bits if self.qat.output and not control else None
        return {
            "method": qat_rows.CONTROL if control else qat_rows.QAT,
            "train_seed": self.settings.seed,
            "train_steps": self.settings.steps,
            "quant_delay": None if control else self.qat.delay,
            "ranges": "" if control else self.qat.ranges,
            "input_bits": None if control else self.qat.observation_bits,
            "output_bits": output,
            "hyperparams": training_settings.hyperparams_text(
                self.settings.hyperparams, self.settings.num_envs
            ),
        }

    def key(self, **changes: Any) -> qat_rows.TrainedKey:
        """Returns what tells the row from others; `changes`: for another row of this training."""
        columns = self.columns | changes
        scheme = changes.get("scheme") or self.qat.scheme
        return qat_rows.TrainedKey(
            rows_lib.Key(
                self.settings.algo, self.settings.env, scheme.bits, scheme.scheme,
                scheme.granularity, scheme.rounding, ",".join(map(str, self.seeds)),
                self.episodes * len(self.seeds),
            ),
            *(columns[name] for name in qat_rows.TrainedKey._fields[1:]),
        )


@dataclasses.dataclass(frozen=True)
class PtqJob:
    """The quantization of one control's agent, without training, to several widths.

    Attributes:
      control: the training.
      others: the settings of the trainings with quantization that it is compared with.
      run: of the control, ENV_<n>.
      calibration_episodes: that find the ranges of activations.
    """

    control: Job
    others: tuple["qat_model.QatSettings", ...]
    run: str
    calibration_episodes: int

    @property
    def name(self) -> str:
        """For people."""
        return f"PTQ of {self.control.name}"

    def key(self, other: "qat_model.QatSettings") -> qat_rows.TrainedKey:
        """Returns what tells the row of a width from others."""
        return self.control.key(scheme=other.scheme, **self.columns(other))

    def columns(self, other: "qat_model.QatSettings") -> dict[str, Any]:
        """Returns what the row of a width says otherwise than that of the control."""
        return {
            "method": qat_rows.PTQ,
            "ranges": qat_rows.calibrated(self.calibration_episodes),
            "quant_delay": None,
            "input_bits": other.observation_bits,
            "output_bits": other.bits if other.output else None,
        }

    def folder_name(self, other: "qat_model.QatSettings") -> str:
        """Returns where rows and agents of the settings go that `measuring` does not tell apart."""
        output = "-output" if other.output else ""
        calibrated = qat_rows.calibrated(self.calibration_episodes)
        return f"{calibrated}-input{other.observation_bits}{output}"


def define_flags() -> None:
    """Defines the flags of this tool."""
    training_settings.define_training_flags()
    qat.define_quantization_flags()
    flags.DEFINE_string(
        "bits", DEFAULT_BITS, "Widths: 2 to 16, and 32, the control; comma separated."
    )
    flags.DEFINE_string(
        "train_seeds", DEFAULT_TRAIN_SEEDS, "Of the trainings, each >= 0; comma separated."
    )
    flags.DEFINE_boolean("ptq", True, "Quantize the controls after their training, too.")
    flags.DEFINE_integer(
        "calibration_episodes", DEFAULT_CALIBRATION_EPISODES,
        "Of a control, that find the ranges of its activations, >= 1.", lower_bound=1,
    )
    parallel.define_jobs()


def main(argv: list[str]) -> int:
    """Runs the sweep; see `cli.run` for errors."""
    values = flags.FLAGS
    # The zoo's `--hyperparams a:1 b:2` is `--hyperparams a:1` and the word `b:2` for absl; no
    # environment has a colon in its name.
    more = [word for word in argv[1:] if values.hyperparams and ":" in word]
    pairs = parallel.pairs([word for word in argv[1:] if word not in more])
    hyperparams = training_settings.parse_hyperparams([*values.hyperparams, *more])
    cli.quiet_tensorflow()
    jobs = _jobs(pairs, hyperparams)
    csv_path = jobs[0].csv_path
    qat_rows.measured_rows(csv_path)  # It may be of another version.
    with parallel.stopped_by_signals():
        failed = _sweep(jobs)
    parallel.say(f"Rows: {csv_path}")
    for algo, env in dict.fromkeys((job.settings.algo, job.settings.env) for job in jobs):
        parallel.say(f"Plot: python -m baseline.collate --qat {algo} {env} --results {csv_path}")
    for job, reason in failed:
        errors.report("qat_sweep", f"{job.name}: {reason}")
    return cli.EXIT_ERROR if failed else 0


def _jobs(pairs: Sequence[tuple[str, str]], hyperparams: dict[str, Any]) -> list[Job]:
    """Returns every training that the flags ask for, seed by seed.

    Raises:
      errors.UserError: one makes no sense.
    """
    from baseline.qat import model as qat_model
    from baseline.study import measuring
    from baseline.tasks import environments
    from baseline.train import experiment
    from baseline.train import training as train

    values = flags.FLAGS
    seeds = measuring.parse_seeds(values.seeds)
    train_seeds = measuring.parse_seeds(values.train_seeds, "train_seeds")
    widths = dict.fromkeys(parse_width(text) for text in values.bits.split(","))
    jobs = []
    for algo, env in dict.fromkeys((names.canonical_algo(algo), env) for algo, env in pairs):
        settings = training_settings.TrainSettings(
            algo, environments.training_name(env), values.steps, None, values.folder,
            save_freq=values.save_freq, num_envs=values.num_envs, device=values.device,
            hyperparams=hyperparams or None, progress=False,
        )
        train.check_environment(algo, settings.env, hyperparams)
        steps = values.steps or experiment.tuned_steps(algo, settings.env, hyperparams)
        delay = steps // 2 if values.quant_delay is None else values.quant_delay
        for seed in train_seeds:
            for bits in widths:
                how = qat_model.QatSettings(
                    bits, delay, values.ranges, values.quantize_output, values.input_bits
                )
                of_width = qat.of_width(
                    dataclasses.replace(settings, steps=steps, seed=seed), bits
                )
                qat.check(of_width, how)
                csv_path = os.path.join(values.folder, qat_rows.CSV_NAME)
                jobs.append(Job(of_width, how, csv_path, seeds, values.episodes))
    return jobs


def parse_width(text: str) -> int:
    """Returns the number of bits.

    Raises:
      errors.UserError: it is no number; `QatSettings` tells which numbers make sense.
    """
    if not text.strip().isdecimal():
        raise errors.UserError(f"--bits are numbers with commas, such as 32,8,4, not {text!r}.")
    return int(text)


def _sweep(jobs: Sequence[Job]) -> list[tuple[Any, str]]:
    """Does what is missing; returns what failed, with the reasons."""
    with parallel.workers(flags.FLAGS.jobs, lean=False, patience_s=SAVING_PATIENCE_S) as workers:
        failed = parallel.run(workers, _train, _missing(jobs), _name, "run")
        if flags.FLAGS.ptq:
            todo = list(_missing_ptq([job for job in jobs if job.qat.control], jobs))
            failed += parallel.run(workers, _quantize, todo, _name, "agent")
    return failed


def _missing(jobs: Sequence[Job]) -> list[Job]:
    rows = qat_rows.measured_rows(jobs[0].csv_path)
    todo = [job for job in jobs if job.key() not in rows]
    if len(todo) < len(jobs):
        parallel.say(f"{len(jobs) - len(todo)} of {len(jobs)} runs are there already.")
    return todo


def _missing_ptq(controls: Sequence[Job], jobs: Sequence[Job]) -> Iterator[PtqJob]:
    for control in controls:
        rows = qat_rows.measured_rows(control.csv_path)
        others = {
            job.qat.bits: job.qat for job in jobs
            if not job.qat.control
            and (job.settings.algo, job.settings.env)
            == (control.settings.algo, control.settings.env)
        }
        if control.key() not in rows:
            continue  # It was not trained, which is reported.
        every = PtqJob(
            control, tuple(others.values()), rows[control.key()].run,
            flags.FLAGS.calibration_episodes,
        )
        missing = tuple(other for other in every.others if every.key(other) not in rows)
        if missing:
            yield dataclasses.replace(every, others=missing)


def _train(job: Job) -> str:
    """Trains and evaluates, in a worker; returns a line."""
    from baseline.study import measuring

    started = time.perf_counter()
    with _told(job.name), parallel.bugs_told(job.name):
        with _stop_signals_noted():  # What follows may be interrupted anywhere.
            path, goes_on = runs.find(job.settings, job.qat, job.columns)
            # A worker that was asked to end may still be given what was queued for it.
            if path is None and not _stop_signals:
                settings = dataclasses.replace(job.settings, resume=goes_on)
                path = qat.train(settings, job.qat, lambda: bool(_stop_signals))
        if path is None:
            raise errors.UserError("stopped before its end: the same command goes on.")
        row = qat.evaluate(path, job.settings.algo, job.seeds, job.episodes)
        rows_lib.append(job.csv_path, row)
        minutes = (time.perf_counter() - started) / 60
        return f"seed {job.settings.seed}, {minutes:.1f} min: {measuring.summary(row)}"


@contextlib.contextmanager
def _stop_signals_noted() -> Iterator[None]:
    """Lets SIGTERM do no more than be noted, in a worker: what is under way is to be saved.

    A second one comes soon where all processes got the first, or another worker died; who lost
    patience kills. The other signals are ignored: see `parallel`.
    """
    before = signal.signal(signal.SIGTERM, lambda signum, frame: _stop_signals.append(signum))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _quantize(job: PtqJob) -> str:
    """Quantizes a control to every width and evaluates that, in a worker; returns lines."""
    from baseline.agents import finding
    from baseline.agents import zoo_files
    from baseline.study import measuring

    control = job.control
    settings = control.settings
    lines = []
    with _told(job.name), parallel.bugs_told(job.name):
        folder = pathlib.Path(settings.folder, settings.algo, job.run)
        path = zoo_files.agent_zip(folder, settings.env)
        for other in job.others:
            request = measuring.Request(
                settings.algo, settings.env, other.scheme, settings.folder,
                str(folder / PTQ_FOLDER / job.folder_name(other)),
                control.seeds, control.episodes, job.calibration_episodes,
                input_bits=other.observation_bits, output=other.output,
            )
            # Anew for every width: it is quantized in place.
            row = measuring.measure(request, finding.load_file(settings.algo, settings.env, path))
            columns = runs.training_columns(path) | job.columns(other)
            rows_lib.append(control.csv_path, qat_rows.trained(row, **columns))
            lines.append(f"PTQ, seed {settings.seed}: {measuring.summary(row)}")
    return "\n".join(lines)


def _name(job: Job | PtqJob) -> str:
    return job.name


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    """Prefixes a worker's lines with what it is at, and shows warnings and progress only."""
    logging.use_absl_handler()  # Which a worker, spawned without absl's `app`, does not yet.
    handler = logging.get_absl_handler()
    before = logging.get_verbosity()
    logging.set_verbosity(logging.INFO)
    handler.setFormatter(std_logging.Formatter(f"[{name}] %(message)s"))
    handler.addFilter(_is_progress_or_warning)
    try:
        yield
    finally:
        handler.removeFilter(_is_progress_or_warning)
        handler.setFormatter(logging.PythonFormatter())
        logging.set_verbosity(before)


def _is_progress_or_warning(record: std_logging.LogRecord) -> bool:
    return record.levelno > std_logging.INFO or record.module == _PROGRESS_MODULE


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(training_settings)  # For --help.
    flags.adopt_module_key_flags(qat)
    flags.adopt_module_key_flags(parallel)
    cli.run(main, takes_arguments=True, name="qat_sweep")
