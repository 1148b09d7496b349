"""A trained agent, ready to play, whichever library trained it."""

import abc
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import json
import pathlib
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from actorQ.core import errors
from baseline.agents import zoo_files
from baseline.quantization import acting_path
from baseline.quantization import schemes


@dataclasses.dataclass
class Agent(abc.ABC):
    """A trained agent, ready to play; subclasses know how its library saves it.

    Attributes:
      algo: One of `finding.ALGORITHMS` (ActorQ: d4pg or dqn).
      env_id: The environment's name as the agent was saved with.
      path: The agent's file.
      network: The acting path.
      make_env: Makes one environment, wrapped as in training, a monitor inside. Takes a render
        mode ("rgb_array", "human") or nothing.
      normalization: How observations are normalized; None: they are used as they come.
      tap: Quantizes activations; None: they stay in fp32.
      quantization: How the agent was quantized, if it was.
      weight_ranges: Smallest and largest number of each layer's weights, of which `integers` makes
        the weights' integers; None: it is not quantized, or does not tell them.
    """

    algo: str
    env_id: str
    path: pathlib.Path
    network: acting_path.PolicyNetwork
    make_env: Callable[..., gym.Env]
    normalization: zoo_files.Normalization | None = None
    tap: acting_path.Tap | None = None
    quantization: tuple[schemes.Scheme, schemes.Ranges | None] | None = None
    weight_ranges: Mapping[str, Any] | None = None

    @abc.abstractmethod
    def save(self, folder: pathlib.Path) -> pathlib.Path:
        """Writes the agent, as it is now, for its own library; returns its file.

        Args:
          folder: The agent's own folder is made in it; an older one is replaced as a whole.

        Raises:
          errors.UserError: The folder cannot be written.
        """

    def normalize(self, observations: np.ndarray) -> np.ndarray:
        """Returns observations [B, ...] as the network takes them."""
        return observations if self.normalization is None else self.normalization(observations)

    def image_size(self) -> tuple[int, int] | None:
        """Returns height and width of the images that convolutions see; None: they see none."""
        environment = self.make_env()
        shape = np.shape(environment.reset()[0])
        environment.close()
        return (shape[1], shape[2]) if len(shape) == 3 else None

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Returns deterministic actions for raw observations [B, ...]."""
        outputs = acting_path.forward(self.network, self.normalize(observations), self.tap)
        return acting_path.to_actions(self.network, outputs.numpy())

    def weights(self) -> dict[str, np.ndarray]:
        """Returns copies of the acting path's weights (no biases), by layer."""
        return {
            f"{name}.weight": module.weight.detach().numpy().copy()
            for name, module in self.network.with_weights()
        }

    def note_quantization(
        self,
        scheme: schemes.Scheme,
        ranges: schemes.Ranges | None,
        weight_ranges: Mapping[str, Any] | None = None,
    ) -> None:
        """Notes how the weights were quantized; with ranges, `act` quantizes activations too."""
        self.quantization = (scheme, ranges)
        self.weight_ranges = weight_ranges
        self.tap = None if ranges is None else schemes.ActivationQuantizer(scheme, ranges)

    def write_quantization(self, path: pathlib.Path) -> None:
        """Writes the noted quantization, if there is one, to a file beside the agent."""
        if self.quantization is not None:
            facts = schemes.to_json(*self.quantization)
            if self.weight_ranges is not None:
                facts["weight_ranges"] = self.weight_ranges
            path.write_text(json.dumps(facts, indent=1))

    def restore_quantization(self, path: pathlib.Path) -> None:
        """Notes the quantization that a file holds, if the file exists.

        Raises:
          errors.UserError: The file is damaged, or belongs to another network.
        """
        if not path.exists():
            return
        try:
            facts = json.loads(path.read_text())
            scheme, ranges = schemes.from_json(facts)
        except (OSError, ValueError, RecursionError, errors.UserError) as error:
            raise errors.UserError(f"Cannot read {path}: {errors.summary(error)}") from None
        layers = {name for name, _ in self.network.with_weights()}
        if ranges is not None and set(ranges) - {acting_path.OUTPUT} != layers:
            raise errors.UserError(f"{path} does not have the layers of {self.path}.")
        self.note_quantization(scheme, ranges, facts.get("weight_ranges"))

    def check_weights(self) -> None:
        """Checks that the agent can act.

        Raises:
          errors.UserError: A weight is NaN or infinite.
        """
        for name, module in self.network.layers:
            if not all(torch.isfinite(tensor).all() for tensor in module.parameters()):
                raise errors.UserError(
                    f"The weights of {self.path} hold NaN or infinity (layer {name}): its "
                    "training failed."
                )
