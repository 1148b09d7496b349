"""The broadcaster's meter: figures of what quantization does to the policy that acts.

For each version, it looks at the weights. Every `--meter_period_s` seconds it also compares the
full-precision policy with the quantized one, on observations from replay. It takes at most 1 % of
the broadcaster's time for both together.

A sample of the replay table would count: items leave it after so many samples, and actors take the
number of samples for the learner's progress. So the last transition of each block that an actor
inserts is also an item of a small table of its own. Its samples count for nothing.

Broadcaster's process only; imports no framework.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import time

import numpy as np

from actorQ.core import config as config_lib
from actorQ.core import settings
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import figures
from actorQ.policy import forms
from actorQ.policy import model_update
from actorQ.policy import reference
from actorQ.wire import connection as connection_lib

SHARE = 0.005  # Largest part of the process's time for either kind of figures.
_OBSERVATIONS = 64
_SAMPLE_TIMEOUT_S = 60.0


class _Budget:
    """Says when there is time for a measurement, and adds up what all of them took.

    Attributes:
      seconds: CPU seconds spent so far.
    """

    def __init__(self, period_s: float, share: float):
        """Allows a measurement at once.

        Args:
          period_s: Minimum seconds between the starts of two measurements.
          share: Largest part of the process's time that they take.
        """
        self._period_s = period_s
        self._share = share
        self._not_before = -float("inf")
        self.seconds = 0.0

    def allows(self) -> bool:
        """Returns whether it is time for a measurement."""
        return time.monotonic() >= self._not_before

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """Times a measurement: the next one waits until this one is a small part of the time."""
        began, spent = time.monotonic(), time.process_time()
        try:
            yield
        finally:
            spent = time.process_time() - spent
            self.seconds += spent
            self._not_before = began + max(self._period_s, spent / self._share)


class Meter:
    """Measures versions in their order."""

    def __init__(self, config: config_lib.RunConfig, share: float = SHARE):
        """Measures nothing yet.

        Args:
          config: The run's configuration.
          share: Largest part of the process's time for either kind of figures.
        """
        self._config = config
        self._weights = _Budget(0.0, share)
        self._behaviour = _Budget(config.meter_period_s, share)
        self._before: dict[str, model_update.Tensor] | None = None

    @property
    def seconds(self) -> float:
        """CPU seconds that the meter has taken in this process."""
        return self._weights.seconds + self._behaviour.seconds

    def weigh(
        self, update: model_update.ModelUpdate, converted: model_update.ModelUpdate
    ) -> dict[str, float]:
        """Returns columns of `telemetry.UPDATE_FIELDS` on the weights of a version.

        Args:
          update: The learner's weights.
          converted: The same weights as they travel to the actors.

        Returns:
          The columns; none if measuring would take too large a part of the time.
        """
        # Slices are views. They keep this version for a comparison with the next one.
        now = figures.sampled_weights(converted.tensors)
        before, self._before = self._before, now
        if not self._weights.allows():
            return {}
        with self._weights.spending():
            columns = {}
            if before is not None:
                columns["changed_share"] = figures.changed_share(before, now)
            computed = forms.expand(
                model_update.ModelUpdate(converted.version, converted.scheme, now)
            )
            errors = figures.weight_errors(figures.sampled_variables(update.tensors), computed)
            return columns | {f"weight_error_{layer}": error for layer, error in errors.items()}

    def compare(
        self,
        connection: connection_lib.Connection,
        update: model_update.ModelUpdate,
        converted: model_update.ModelUpdate,
    ) -> dict[str, float]:
        """Returns columns of `telemetry.METER_FIELDS` on what a version's policies do.

        Args:
          connection: Connection to the run's server.
          update: The learner's weights.
          converted: The same weights as they travel to the actors.

        Returns:
          The columns; none if it is not time, or while there are no observations.

        Raises:
          errors.LearnerGoneError: The server does not answer in time.
        """
        if not self._config.meter_period_s or not self._behaviour.allows():
            return {}
        with self._behaviour.spending():
            if not connection.status().observations:
                return {}
            together = self._config.envs_per_actor
            items = connection.sample(
                settings.OBSERVATION_TABLE, together * -(-_OBSERVATIONS // together),
                _SAMPLE_TIMEOUT_S,
            )
            weights = forms.from_sonnet(update.tensors)
            tensors = forms.expand(converted)
            architecture, observations = _read(items, weights)
            activations = reference.Activations.SYMMETRIC
            if self._config.inference_mode == "pytorch":
                activations = reference.Activations.AFFINE_7_BITS
            elif self._config.inference_mode == "tensorflow":
                tensors = {name: model_update.to_float32(each) for name, each in tensors.items()}
            return figures.compare_policies(
                architecture, weights, tensors, observations, activations, together
            )


def _read(
    items: Sequence[Sequence[np.ndarray]], weights: dict[str, np.ndarray]
) -> tuple[architecture_lib.PolicyArchitecture, np.ndarray]:
    """Returns the policy's architecture and the observations of transitions.

    The broadcaster knows no environment. Sizes say it all: an item is pixels and a vector, or a
    vector of two observations, an action, a return and a discount (`replay.Layout`).

    Args:
      items: Transitions as they lie in replay.
      weights: The policy's weights with torch's names and layouts.
    """
    shapes = {name: weight.shape for name, weight in weights.items()}
    *frames, vector = (np.stack(column) for column in zip(*items, strict=True))
    if frames:
        observations = np.ascontiguousarray(frames[0][:, 0])
        head = architecture_lib.Q_VALUES_HEAD  # D4PG has no images.
    else:
        size = shapes["linear_0.weight"][1]
        observations = np.ascontiguousarray(vector[:, :size])
        action_size = vector.shape[1] - 2 * size - 2
        outputs = shapes[f"{architecture_lib.HEAD}.weight"][0]
        # A discrete action is one number, and there are several to choose from.
        is_action = action_size == outputs
        head = architecture_lib.TANH_HEAD if is_action else architecture_lib.Q_VALUES_HEAD
    architecture = architecture_lib.of_weights(shapes, observations.shape[1:], head)
    return architecture, observations
