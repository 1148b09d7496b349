"""What commands of `baseline` have in common, imported as they would: for `tests.commands`."""

import os

import matplotlib.backends.backend_agg
import matplotlib.figure  # noqa: F401

from actorQ.core import cli
from actorQ.core import lean_imports

cli.quiet_tensorflow()
with lean_imports.without("tensorflow"):  # As trainings do; others do without TensorBoard, too.
    from baseline.agents import finding
    from baseline.agents import hub  # noqa: F401
    from baseline.study import measuring  # noqa: F401
    from baseline.tasks import environments
os.environ.pop("TF_CPP_MIN_LOG_LEVEL")  # A command is to say so itself.
finding.set_threads()
environments.register()
