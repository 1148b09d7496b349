"""D4PG on the actor's side: Gaussian noise on a deterministic policy. Imports no TensorFlow."""

import math

import numpy as np

from actorQ.core import config as config_lib

_NOISE_STEPS = 1000  # Steps whose noise is drawn at once; slower waves than that have no power.


class GaussianExploration:
    """Adds Gaussian noise to actions in [-1, 1] and clips them again.

    The noise of one step is standard normal. Over steps, its power at frequency f is in proportion
    to f^-z (Eberhard et al. 2023, "Pink Noise Is All You Need"; Timmer and Koenig 1995). Noise with
    z > 0 is drawn for many steps at once, with a Fourier transform.
    """

    def __init__(self, scale: float, rng: np.random.Generator, exponent: float = 0.0):
        """Takes the noise and its source.

        Args:
          scale: Standard deviation, in units of the scaled action.
          rng: Source of random numbers.
          exponent: The exponent z; 0: the noise of each step is independent.
        """
        self.scale = scale
        self._rng = rng
        # Amplitudes of the frequencies 1/N, 2/N, ... of N steps; a constant part has none.
        self._amplitudes = np.arange(1, _NOISE_STEPS // 2 + 1) ** (-exponent / 2)
        self._white = exponent == 0.0
        self._ahead: list[np.ndarray] = []

    def begin(self) -> None:
        """Forgets the noise of the last episode."""
        self._ahead = []

    def __call__(self, output: np.ndarray) -> np.ndarray:
        """Returns the action, float32 [A], for the policy's output, float32 [A]."""
        if self.scale == 0.0:
            return output
        # These operations work in place. np.clip alone takes longer than all of them.
        action = self._noise(output.shape)
        action *= np.float32(self.scale)
        action += output
        np.maximum(action, -1.0, out=action)
        return np.minimum(action, 1.0, out=action)

    def _noise(self, shape: tuple[int, ...]) -> np.ndarray:
        if self._white:
            return self._rng.standard_normal(shape, np.float32)
        if not self._ahead:
            self._ahead = list(self._draw(shape))
        return self._ahead.pop()

    def _draw(self, shape: tuple[int, ...]) -> np.ndarray:
        """Returns the noise of many steps, float32 [N, A]."""
        size = (len(self._amplitudes), *shape)
        waves = self._rng.standard_normal(size) + 1j * self._rng.standard_normal(size)
        waves *= self._amplitudes.reshape(-1, *[1] * len(shape))
        waves[-1].imag = 0.0  # The highest frequency of an even number of steps has no phase.
        spectrum = np.concatenate([np.zeros((1, *shape)), waves])
        noise = np.fft.irfft(spectrum, _NOISE_STEPS, axis=0)
        power = 2 * np.sum(self._amplitudes**2) - 1.5 * self._amplitudes[-1] ** 2
        return (noise * (_NOISE_STEPS / np.sqrt(2 * power))).astype(np.float32)


def exploration_scale(config: config_lib.RunConfig, actor_id: int) -> float:
    """Returns sigma_i = sigma (i-1)/(N-1), which rises evenly from 0 to `--sigma` over the actors.

    A single actor gets `--sigma` itself. The original gives it 0, so that it never explores.
    """
    if config.n_actors == 1:
        return config.sigma
    return config.sigma * (actor_id - 1) / (config.n_actors - 1)


def make_exploration(
    config: config_lib.RunConfig, actor_id: int, rng: np.random.Generator
) -> GaussianExploration:
    """Builds the exploration of one actor."""
    return GaussianExploration(
        exploration_scale(config, actor_id), rng, config.noise_exponent
    )


def greedy(output: np.ndarray) -> np.ndarray:
    """Returns the action without exploration."""
    return output


def reward_limit(config: config_lib.RunConfig) -> float:
    """Returns the largest magnitude of a single reward in replay, as D4PG clips no rewards."""
    del config
    return math.inf
