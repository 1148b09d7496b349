"""The command line of every process: absl flags from `config.RunConfig`, and back.

Imports no framework.
"""

from collections.abc import Collection
import dataclasses
from typing import Any

from absl import flags

from actorQ.core import config as config_lib
from actorQ.core import energy
from actorQ.core import presets
from actorQ.core import settings
from actorQ.core import snapshots
from actorQ.core import telemetry

_NONE = "none"  # Word for a number that is not set.


class _NumberOrWord(flags.ArgumentParser):
    """Parses a number, or one word that stands for another value."""

    def __init__(self, word: str, value: str | None):
        """Takes the word and the value that it stands for."""
        super().__init__()
        self._word, self._value = word, value
        self.syntactic_help = f"a number or {word}"

    def parse(self, argument: Any) -> float | str | None:
        """Returns the value of a flag.

        Raises:
          ValueError: The text is neither.
        """
        if argument == self._word:
            return self._value
        try:
            return float(argument)
        except ValueError:
            raise ValueError(f"expected a number or {self._word}") from None

    def flag_type(self) -> str:
        """Returns the name of the type, for absl's own help in XML."""
        return self.syntactic_help


class _YesNoOrAuto(flags.BooleanParser):
    """Parses --resume: as a boolean flag, or the word auto."""

    def parse(self, argument: Any) -> Any:
        """Returns the value of the flag.

        Raises:
          ValueError: The text is neither.
        """
        return settings.AUTO if argument == settings.AUTO else super().parse(argument)


def define_flags(names: Collection[str] = ()) -> None:
    """Defines one absl flag for every field of `RunConfig`.

    The defaults that --help shows are those of a task without settings of its own.

    Args:
      names: Fields that a program wants; by default all of them.
    """
    defaults = presets.defaults()
    for field in dataclasses.fields(config_lib.RunConfig):
        if names and field.name not in names:
            continue
        default: Any = defaults[field.name]
        choices = field.metadata["choices"]
        # Checks of ranges and choices are left to RunConfig, so that Python callers get them too.
        if field.type is bool:  # There is one such flag.
            flags.DEFINE(_YesNoOrAuto(), field.name, default, _flag_help(field), boolean=True)
        elif field.type is int:
            flags.DEFINE_integer(field.name, default, _flag_help(field))
        elif field.type is float:
            flags.DEFINE_float(field.name, default, _flag_help(field))
        elif field.type == float | None:
            flags.DEFINE(_NumberOrWord(_NONE, None), field.name, default, _flag_help(field))
        elif settings.takes_auto(field):
            auto = _NumberOrWord(settings.AUTO, settings.AUTO)
            flags.DEFINE(auto, field.name, default, _flag_help(field))
        elif choices:
            flags.DEFINE_enum(field.name, default, list(choices), _flag_help(field))
        else:
            flags.DEFINE_string(field.name, default, _flag_help(field))


def from_flags(
    flag_values: flags.FlagValues = flags.FLAGS, resumable: bool = False
) -> config_lib.RunConfig:
    """Builds the configuration from parsed flags.

    Settings whose flags are not given come from --preset.

    Args:
      flag_values: Parsed flags.
      resumable: Whether --resume takes flags that were not given from the run in --logpath. These
        processes start the run anew at --resume=auto if there is no checkpoint.

    Raises:
      errors.UserError: A value is not legal, or there is no run to resume; or energy is tracked,
        and ACTORQ_COUNTRY names no country.
    """
    names = {field.name for field in dataclasses.fields(config_lib.RunConfig)}
    given = {name: flag_values[name].value for name in names if flag_values[name].present}
    if given.get("resume") == settings.AUTO:
        given["resume"] = _goes_on(flag_values.logpath, resumable)
    if resumable and given.get("resume"):
        run = dataclasses.asdict(config_lib.RunConfig.load(flag_values.logpath))
        others = {name: run[name] for name in names - config_lib.names_of(settings.Kind.NOT_KEPT)}
    else:
        others = presets.resolve(flag_values.preset, flag_values.taskstr)
        others["preset"] = flag_values.preset
        # A flag that switches evaluations off is stronger than a rule that would need them.
        both = {**others, **given}
        if given.get("eval_period_s") == 0 and not both.get("eval_period_steps"):
            others.pop("stop_return", None)
    config = config_lib.RunConfig(**{**others, **given})
    if config.track_energy:
        energy.country()  # A name that cannot be used is told before anything starts.
    return config


def _goes_on(logpath: str, resumable: bool) -> bool:
    """Returns whether --resume=auto means a run that goes on."""
    if resumable:
        return bool(snapshots.Store(logpath).newest_name())
    return telemetry.last_seconds(logpath) > 0  # Broadcaster and actors go on in their logs.


def to_flags(config: config_lib.RunConfig) -> list[str]:
    """Returns command-line arguments that rebuild `config`.

    Values that the preset or the defaults give are left out, with two exceptions. In a run that is
    resumed, a flag that is not given would be taken from the run. In a run that the launcher has
    started, a process may be started again after somebody has changed presets.yaml.
    """
    everything = config.resume or (config.launch_id and config.preset != presets.NONE)
    expected = dataclasses.asdict(config_lib.RunConfig()) | {"preset": presets.AUTO}
    expected |= presets.resolve(config.preset, config.taskstr)
    return [
        f"--{name}={_NONE if value is None else value}"
        for name, value in dataclasses.asdict(config).items()
        if everything or value != expected[name]
    ]


def _flag_help(field: dataclasses.Field) -> str:
    low, high = field.metadata["low"], field.metadata["high"]
    if field.metadata["choices"] or (low is None and high is None):
        return field.metadata["help"]
    bounds = [f">= {low}"] if low is not None else []
    bounds += [f"<= {high}"] if high is not None else []
    return f"{field.metadata['help']} ({', '.join(bounds)})"
