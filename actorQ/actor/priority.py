"""Lets this process have the time that others leave on its cores. Imports no framework."""

import contextlib
import os

_LOW = 10  # Nice value: a ninth of the weight of others, see sched(7).
_AUTOGROUP = "/proc/self/autogroup"


def yield_cores() -> None:
    """Gives this process and its later threads a low priority; call it before threads start.

    Linux may share time between sessions before it looks at nice values (autogroups, sched(7)).
    So the session that the launcher gave this process gets the value as well. Ten keeps a share on
    a busy machine, where the lowest priority would hardly let it act.
    """
    given = os.getpriority(os.PRIO_PROCESS, 0)  # Whoever starts a run may have set a lower one.
    os.setpriority(os.PRIO_PROCESS, 0, max(given, _LOW))
    if os.getsid(0) == os.getpid():  # Others would share a session of somebody else.
        with contextlib.suppress(OSError):  # The kernel has no autogroups.
            with open(_AUTOGROUP, "w", encoding="ascii") as autogroup:
                autogroup.write(str(_LOW))
