"""The command line of every process: absl flags made of `config.RunConfig`, and back.

Imports no framework.
"""

import dataclasses

from absl import flags

from actorQ.core import config as config_lib
from actorQ.core import settings


def define_flags() -> None:
    """Defines one absl flag for every field of `RunConfig`."""
    for field in dataclasses.fields(config_lib.RunConfig):
        metadata = field.metadata
        # Checks of ranges and choices are left to RunConfig, so that Python callers get them too.
        if field.type is bool:
            flags.DEFINE_boolean(field.name, field.default, metadata["help"])
        elif field.type is int:
            flags.DEFINE_integer(field.name, field.default, _flag_help(field))
        elif field.type is float or field.type == float | None:
            flags.DEFINE_float(field.name, field.default, _flag_help(field))
        elif metadata["choices"]:
            choices = list(metadata["choices"])
            flags.DEFINE_enum(field.name, field.default, choices, metadata["help"])
        else:
            flags.DEFINE_string(field.name, field.default, metadata["help"])


def from_flags(
    flag_values: flags.FlagValues = flags.FLAGS, resumable: bool = False
) -> config_lib.RunConfig:
    """Builds the configuration from parsed flags.

    Args:
      flag_values: the flags.
      resumable: whether with --resume the flags that were not given are those of the run in
        --logpath.

    Raises:
      errors.UserError: a value is not legal, or there is no run to resume.
    """
    names = {field.name for field in dataclasses.fields(config_lib.RunConfig)}
    values = {name: flag_values[name].value for name in names}
    if resumable and values["resume"]:
        run = config_lib.RunConfig.load(values["logpath"])
        for name in names - config_lib.names_of(settings.Kind.NOT_KEPT):
            if not flag_values[name].present:
                values[name] = getattr(run, name)
    return config_lib.RunConfig(**values)


def to_flags(config: config_lib.RunConfig) -> list[str]:
    """Returns command-line arguments that rebuild `config`.

    They are what differs from defaults; of a run that is resumed everything that a flag can say,
    since there what is not given is taken from the run.
    """
    arguments = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is not None and (config.resume or value != field.default):
            arguments.append(f"--{field.name}={value}")
    return arguments


def _flag_help(field: dataclasses.Field) -> str:
    low, high = field.metadata["low"], field.metadata["high"]
    if field.metadata["choices"] or (low is None and high is None):
        return field.metadata["help"]
    bounds = [f">= {low}"] if low is not None else []
    bounds += [f"<= {high}"] if high is not None else []
    return f"{field.metadata['help']} ({', '.join(bounds)})"
