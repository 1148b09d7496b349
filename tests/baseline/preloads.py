"""What commands of `baseline` have in common, imported as they would: for `tests.commands`."""

import os

import matplotlib.backends.backend_agg
import matplotlib.figure  # noqa: F401

from actorQ import cli
from actorQ import lean_imports

cli.quiet_tensorflow()
with lean_imports.without("tensorflow"):  # As trainings do; others do without TensorBoard, too.
    from baseline import agents
    from baseline import environments
    from baseline import hub  # noqa: F401
    from baseline import measuring  # noqa: F401
os.environ.pop("TF_CPP_MIN_LOG_LEVEL")  # A command is to say so itself.
agents.set_threads()
environments.register()
