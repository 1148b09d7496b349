"""Lets this process have only the time that others leave on its cores. Imports no framework."""

import contextlib
import os

_LOWEST = 19  # Nice value that gives way to all others, see sched(7).
_AUTOGROUP = "/proc/self/autogroup"


def yield_cores() -> None:
    """Gives this process and its later threads the lowest priority; call it before threads start.

    Linux may share time between sessions before it looks at nice values (autogroups, sched(7)).
    So the session that the launcher gave this process gets the lowest value as well.
    """
    os.setpriority(os.PRIO_PROCESS, 0, _LOWEST)
    if os.getsid(0) == os.getpid():  # Others would share a session of somebody else.
        with contextlib.suppress(OSError):  # The kernel has no autogroups.
            with open(_AUTOGROUP, "w", encoding="ascii") as autogroup:
                autogroup.write(str(_LOWEST))
