"""Trains an agent: `python -m baseline.train`. `training` does the work."""

from absl import flags

from actorQ.core import cli
from baseline.train import settings
from baseline.train import training

if __name__ == "__main__":
    settings.define_flags()
    flags.adopt_module_key_flags(settings)
    cli.run(training.main, takes_arguments=True, name="train")
