"""Trains an agent with fake quantization: `python -m baseline.qat`; `training` does the work."""

from absl import flags

from actorQ.core import cli
from baseline.qat import training
from baseline.train import settings

if __name__ == "__main__":
    training.define_flags()
    for module in (training, settings):  # --help shows the key flags.
        flags.adopt_module_key_flags(module)
    cli.run(training.main, takes_arguments=True, name="qat")
