"""Imports that most commands of `baseline` share, for the server of `tests.commands`."""

import os

import matplotlib.backends.backend_agg
import matplotlib.figure  # noqa: F401

from actorQ.core import cli
from actorQ.core import lean_imports

cli.quiet_tensorflow()
with lean_imports.without("tensorflow"):  # Trainings do the same.
    from baseline.agents import finding
    from baseline.agents import hub  # noqa: F401
    from baseline.study import measuring  # noqa: F401
    from baseline.tasks import environments
os.environ.pop("TF_CPP_MIN_LOG_LEVEL")  # Every command sets it by itself.
finding.set_threads()
environments.register()
