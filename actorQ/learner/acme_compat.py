"""Makes dm-acme 0.2.2 importable and correct with the pinned stack; import it before acme.

Every process that uses Acme imports this module first. Acme's last release without dm-launchpad is
older than the Reverb and Keras that run on Python 3.11, so several things no longer fit. Each of
them has one function here, whose docstring says what breaks without it.
"""

import atexit
import importlib.machinery
import importlib.util
import inspect
import sys
import types

_WITHOUT_TENSOR_BRANCHES = ("acme.tf", "actorQ", "sonnet", "tree", "trfl")


def _make_stand_in(name: str, **attributes: object) -> types.ModuleType:
    """Builds a module with the given names, and no others, since libraries inspect modules."""
    module = types.ModuleType(name)
    module.__dict__.update(attributes)
    module.__spec__ = importlib.machinery.ModuleSpec(name, loader=None)
    return module


def _is_missing(name: str) -> bool:
    return name not in sys.modules and importlib.util.find_spec(name) is None


def _stand_in_for_launchpad() -> None:
    """Lets Acme's distributed agents import launchpad, which has no build for Python 3.11."""
    if _is_missing("launchpad"):
        sys.modules["launchpad"] = _make_stand_in("launchpad", Program=object)


def _import_wrappers_without_gym() -> None:
    """Imports acme.wrappers, whose gym wrapper needs names of the retired package gym.

    The stand-in is removed right after, because Stable-Baselines3, shimmy and Ray act differently
    if they can import gym.
    """
    if not _is_missing("gym"):
        return
    import gymnasium

    sys.modules["gym"] = _make_stand_in(
        "gym", Env=gymnasium.Env, Space=gymnasium.Space, spaces=gymnasium.spaces
    )
    try:
        import acme.wrappers  # noqa: F401
    finally:
        del sys.modules["gym"]


def _accept_signature_timeout() -> None:
    """Lets Reverb's client take `get_signature_timeout_ms`.

    Acme's adders pass it. Reverb has dropped it, so their first `add` would raise a TypeError.
    """
    import reverb

    trajectory_writer = reverb.Client.trajectory_writer
    if "get_signature_timeout_ms" in inspect.signature(trajectory_writer).parameters:
        return

    # functools.wraps is not used: the check above must see this signature, not the wrapped one.
    def accept_and_drop(
        self: reverb.Client,
        num_keep_alive_refs: int,
        *,
        get_signature_timeout_ms: int | None = None,
        **kwargs: object,
    ) -> reverb.TrajectoryWriter:
        del get_signature_timeout_ms
        return trajectory_writer(self, num_keep_alive_refs, **kwargs)

    reverb.Client.trajectory_writer = accept_and_drop


def _draw_fresh_initial_weights() -> None:
    """Gives Acme's networks an initializer that draws new numbers on every call.

    Without a seed, a Keras 2.15 initializer returns the same numbers each time. Acme shares one
    among all layers, so layers of one shape, and whole networks, would start identical. Sonnet's
    initializer has the same distribution.
    """
    from acme.tf.networks import continuous
    import sonnet as snt

    if not isinstance(continuous.uniform_initializer, snt.initializers.Initializer):
        continuous.uniform_initializer = snt.initializers.VarianceScaling(
            scale=0.333, mode="fan_out", distribution="uniform"
        )


def _convert_learner_steps_alone() -> None:
    """Keeps AutoGraph from rewriting the functions that a learner's step calls.

    AutoGraph would parse and rewrite every function of Sonnet, dm-tree, TRFL, Acme's losses and
    ours before the first step of a run. This is most of the time that tracing takes. In none of
    these functions a tensor decides where to branch, except in the step itself. TensorFlow has the
    same rule for itself, Keras and NumPy.
    """
    from tensorflow.python.autograph.core import config
    from tensorflow.python.autograph.core import config_lib

    known = {str(rule) for rule in config.CONVERSION_RULES}
    rules = [config_lib.DoNotConvert(package) for package in _WITHOUT_TENSOR_BRANCHES]
    config.CONVERSION_RULES += tuple(rule for rule in rules if str(rule) not in known)


def _leave_functions_to_process_exit() -> None:
    """Replaces a destructor of TensorFlow by an empty one when the process ends.

    The destructor would run when the modules that it uses are gone. It would print harmless
    tracebacks ("Exception ignored in: AtomicFunction.__del__") after the user's last line.
    """
    from tensorflow.python.eager.polymorphic_function import atomic_function

    atexit.register(setattr, atomic_function.AtomicFunction, "__del__", lambda self: None)


def apply() -> None:
    """Makes all these changes; a second call changes nothing."""
    _stand_in_for_launchpad()
    _import_wrappers_without_gym()
    _accept_signature_timeout()
    _draw_fresh_initial_weights()
    _convert_learner_steps_alone()
    _leave_functions_to_process_exit()


apply()
