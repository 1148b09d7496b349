"""What commands of `baseline` have in common, imported as they would: for `tests.commands`."""

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
agents.set_threads()
environments.register()
