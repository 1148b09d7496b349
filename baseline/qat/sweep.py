"""Trains, evaluates and quantizes all that a sweep of quantization-aware training asks for.

`baseline.qat_sweep` is the command. No row is made twice, and interrupted runs go on.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import logging as std_logging
import os
import pathlib
import shlex
import signal
import time
from typing import Any

from absl import flags
from absl import logging

from actorQ.core import errors
from actorQ.core import output
from baseline.agents import finding
from baseline.agents import zoo_files
from baseline.qat import model as qat_model
from baseline.qat import runs
from baseline.qat import training
from baseline.quantization import fake_quantizers
from baseline.quantization import names
from baseline.quantization import recipes
from baseline.study import measuring
from baseline.study import method_rows
from baseline.study import parallel
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from baseline.tasks import environments
from baseline.train import experiment
from baseline.train import settings as training_settings
from baseline.train import training as plain_training

PTQ_FOLDER = "ptq"  # A folder in a control's run folder.
SAVING_PATIENCE_S = 120.0  # Interrupted trainings save: a replay buffer may be a gigabyte.
_PROGRESS_MODULE = "callbacks"  # `baseline.train.callbacks` logs progress.
_stop_signals: list[int] = []  # The signals that this worker got while it trained.


@dataclasses.dataclass(frozen=True)
class Job:
    """One training and its evaluation.

    Attributes:
      settings: settings of the training, with steps, seed and the environment's present name; the
        folder is the width's.
      qat: settings of its quantization, with the delay.
      csv_path: file that gets the row.
      seeds: seeds of the evaluation's environments.
      episodes: episodes of the evaluation, for each seed.
    """

    settings: training_settings.TrainSettings
    qat: qat_model.QatSettings
    csv_path: str
    seeds: tuple[int, ...]
    episodes: int

    @property
    def name(self) -> str:
        """The name for people."""
        width = names.FP32 if self.qat.control else f"{self.qat.bits} bits"
        settings = self.settings
        lsq = " lsq" if self.qat.estimator == qat_rows.LSQ and not self.qat.control else ""
        return f"{settings.algo} {settings.env} {width:>6}{lsq} seed {settings.seed}"

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of its row about the training, but for the run."""
        control = self.qat.control
        return {
            "method": qat_rows.CONTROL if control else qat_rows.QAT,
            "train_seed": self.settings.seed,
            "train_steps": self.settings.steps,
            "quant_delay": None if control else self.qat.delay,
            **self.qat.columns,
            "hyperparams": training_settings.hyperparams_text(
                self.settings.hyperparams, self.settings.num_envs
            ),
        }

    def key(self, **changes: Any) -> qat_rows.TrainedKey:
        """Returns the key of its row.

        Args:
          **changes: values of another row of this training, and its `scheme`.
        """
        columns = self.columns | changes
        scheme = changes.get("scheme") or self.qat.scheme
        return qat_rows.TrainedKey(
            measuring.key(
                self.settings.algo, self.settings.env, scheme, self.seeds, self.episodes
            ),
            *(columns[name] for name in qat_rows.TrainedKey._fields[1:]),
        )


@dataclasses.dataclass(frozen=True)
class Ptq:
    """How controls are quantized without training.

    Attributes:
      calibration_episodes: episodes that find the ranges of activations.
      method: method of `baseline.ptq`.
    """

    calibration_episodes: int
    method: str = recipes.MINMAX


@dataclasses.dataclass(frozen=True)
class PtqJob:
    """The quantization of one control's agent, without training, to several widths.

    Attributes:
      control: the control's training.
      others: settings of the trainings with quantization to compare it with.
      run: run of the control, ENV_<n>.
      how: the quantization.
    """

    control: Job
    others: tuple[qat_model.QatSettings, ...]
    run: str
    how: Ptq

    @property
    def name(self) -> str:
        """The name for people."""
        return f"PTQ of {self.control.name}"

    def key(self, other: qat_model.QatSettings) -> qat_rows.TrainedKey:
        """Returns the key of the row of a width."""
        return self.control.key(scheme=other.scheme, **self.columns(other))

    def columns(self, other: qat_model.QatSettings) -> dict[str, Any]:
        """Returns the columns in which the row of a width differs from the control's."""
        return {
            **other.columns, "method": qat_rows.PTQ, "quant_delay": None,
            "ranges": qat_rows.calibrated(self.how.calibration_episodes, self.how.method),
        }

    def folder_name(self, other: qat_model.QatSettings) -> str:
        """Returns the folder for settings that `measuring` does not tell apart."""
        output = "-output" if other.output else ""
        calibrated = qat_rows.calibrated(self.how.calibration_episodes)
        return f"{calibrated}-input{other.observation_bits}{output}"


def jobs_of_flags(
    pairs: Sequence[tuple[str, str]], hyperparams: Mapping[str, Any]
) -> list[Job]:
    """Returns every training that the flags ask for, seed by seed.

    Args:
      pairs: algorithms and environments.
      hyperparams: hyper-parameters that replace tuned ones.

    Raises:
      errors.UserError: a training makes no sense.
    """
    values = flags.FLAGS
    seeds = measuring.parse_seeds(values.seeds)
    train_seeds = measuring.parse_seeds(values.train_seeds, "train_seeds")
    texts = values.bits.split(",")
    if not all(text.strip().isdecimal() for text in texts):
        raise errors.UserError(
            f"--bits are numbers with commas, such as 32,8,4, not {values.bits!r}."
        )
    estimators = [text.strip() for text in values.estimator.split(",")]
    # A control quantizes nothing, whatever the estimator.
    cells = dict.fromkeys(
        (bits, qat_rows.STE if bits == fake_quantizers.CONTROL_BITS else estimator)
        for bits in map(int, texts) for estimator in estimators
    )
    csv_path = os.path.join(values.folder, qat_rows.CSV_NAME)
    jobs = []
    for algo, env in dict.fromkeys((names.canonical_algo(algo), env) for algo, env in pairs):
        settings = training_settings.TrainSettings(
            algo, environments.training_name(env), values.steps, None, values.folder,
            save_freq=values.save_freq, num_envs=values.num_envs, device=values.device,
            hyperparams=hyperparams or None, progress=False,
        )
        plain_training.check_environment(algo, settings.env, hyperparams)
        steps = values.steps or experiment.tuned_steps(algo, settings.env, hyperparams)
        delay = steps // 2 if values.quant_delay is None else values.quant_delay
        for seed in train_seeds:
            for bits, estimator in cells:
                how = training.quantization_of_flags(bits, delay, estimator)
                of_width = training.of_width(
                    dataclasses.replace(settings, steps=steps, seed=seed), bits
                )
                training.check(of_width, how)
                jobs.append(Job(of_width, how, csv_path, seeds, values.episodes))
    return jobs


def run(
    jobs: Sequence[Job], processes: int, ptq: Ptq | None
) -> list[tuple[Job | PtqJob, str]]:
    """Does what is missing; returns the jobs that failed, with the reasons.

    Args:
      jobs: trainings, at least one.
      processes: number of processes at once, see `parallel.workers`.
      ptq: how the controls are quantized; None: they are not.

    Raises:
      errors.UserError: the file of the rows is damaged, or a worker died.
    """
    csv_path = jobs[0].csv_path
    # A file of another version is refused before any work.
    rows_lib.measured_rows(csv_path, qat_rows.TrainedRow)
    with (
        parallel.stopped_by_signals(),
        parallel.workers(processes, lean=False, patience_s=SAVING_PATIENCE_S) as workers,
    ):
        untrained = parallel.run(workers, _train, _missing(jobs), lambda job: job.name, "run")
        todo = []
        if ptq is not None:
            todo = list(_missing_ptq(jobs, ptq))
        unquantized = parallel.run(workers, _quantize, todo, lambda job: job.name, "agent")
    parallel.say(f"Rows: {csv_path}")
    for algo, env in dict.fromkeys((job.settings.algo, job.settings.env) for job in jobs):
        parallel.say(
            f"Plot: {output.python()} -m baseline.collate --qat {algo} {env} "
            f"--results {shlex.quote(csv_path)}"
        )
    return [*untrained, *unquantized]


def _missing(jobs: Sequence[Job]) -> list[Job]:
    rows = rows_lib.measured_rows(jobs[0].csv_path, qat_rows.TrainedRow)
    todo = [job for job in jobs if job.key() not in rows]
    if len(todo) < len(jobs):
        parallel.say(f"{len(jobs) - len(todo)} of {len(jobs)} runs are there already.")
    return todo


def _missing_ptq(jobs: Sequence[Job], ptq: Ptq) -> Iterator[PtqJob]:
    for control in (job for job in jobs if job.qat.control):
        rows = rows_lib.measured_rows(control.csv_path, qat_rows.TrainedRow)
        if control.key() not in rows:
            continue  # Its training failed, which is reported.
        pair = control.settings.algo, control.settings.env
        run = rows[control.key()].run
        every = PtqJob(control, (), run, ptq)
        others = {
            every.key(job.qat): job.qat for job in jobs
            if not job.qat.control and (job.settings.algo, job.settings.env) == pair
            and not job.qat.widths  # PTQ has one width for all weights and activations.
        }
        every = PtqJob(control, tuple(others.values()), run, ptq)
        missing = tuple(other for other in every.others if every.key(other) not in rows)
        if missing:
            yield dataclasses.replace(every, others=missing)


def _train(job: Job) -> str:
    """Trains and evaluates, in a worker; returns a line."""
    started = time.perf_counter()
    with _told(job.name), parallel.bugs_told(job.name):
        with _stop_signals_noted():  # The evaluation after it may be interrupted anywhere.
            path, goes_on = runs.find(job.settings, job.qat, job.columns)
            # A worker that was asked to end may still get a job from the queue.
            if path is None and not _stop_signals:
                settings = dataclasses.replace(job.settings, resume=goes_on)
                path = training.train(settings, job.qat, lambda: bool(_stop_signals))
        if path is None:
            raise errors.UserError("stopped before its end: the same command goes on.")
        row = training.evaluate(path, job.settings.algo, job.seeds, job.episodes)
        rows_lib.append(job.csv_path, row)
        minutes = (time.perf_counter() - started) / 60
        return f"seed {job.settings.seed}, {minutes:.1f} min: {measuring.summary(row)}"


@contextlib.contextmanager
def _stop_signals_noted() -> Iterator[None]:
    """Notes SIGTERM instead of obeying it, so that a worker saves the training under way.

    A second SIGTERM comes soon where all processes got the first, or where another worker died.
    The parent kills workers once its patience ends. Other signals are ignored: see `parallel`.
    """
    before = signal.signal(signal.SIGTERM, lambda signum, frame: _stop_signals.append(signum))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _quantize(job: PtqJob) -> str:
    """Quantizes a control to every width and evaluates that, in a worker; returns lines."""
    control = job.control
    settings = control.settings
    lines = []
    with _told(job.name), parallel.bugs_told(job.name):
        folder = pathlib.Path(settings.folder, settings.algo, job.run)
        path = zoo_files.agent_zip(folder, settings.env)
        for other in job.others:
            request = measuring.Request(
                settings.algo, settings.env,
                dataclasses.replace(other.scheme, method=job.how.method), settings.folder,
                str(folder / PTQ_FOLDER / job.folder_name(other)),
                control.seeds, control.episodes, job.how.calibration_episodes,
                input_bits=other.observation_bits, output=other.output,
            )
            # The agent is loaded anew for every width, since it is quantized in place.
            row = measuring.measure(request, finding.load_file(settings.algo, settings.env, path))
            columns = runs.training_columns(path) | job.columns(other)
            if isinstance(row, method_rows.MethodRow) and row.chosen != row.method:
                parts = row.note, f"chosen: {row.chosen}"
                columns["note"] = "; ".join(part for part in parts if part)
            rows_lib.append(control.csv_path, qat_rows.trained(row, **columns))
            lines.append(f"PTQ, seed {settings.seed}: {measuring.summary(row)}")
    return "\n".join(lines)


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    """Prefixes a worker's log lines with its job, and shows warnings and progress only."""
    logging.use_absl_handler()  # A spawned worker has no `app` of absl that would do so.
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
