"""One Atari game as SB3's AtariWrapper shows it: no-op starts, frame skip, lives as episodes."""

from typing import NamedTuple

import ale_py
import cv2
from gymnasium.utils import seeding
import numpy as np

SCREEN_SIZE = 84  # Pixels, both ways.
FRAME_SKIP = 4
NOOP_MAX = 30
NOOP = 0
FIRE = 1


class EpisodeScore(NamedTuple):
    """The result of a whole game (all lives): the sum of unclipped rewards, and the frames."""

    score: float
    frames: int


class Outcome(NamedTuple):
    """The result of one action.

    Attributes:
      screen: uint8 [84, 84], grayscale.
      reward: Unclipped reward, summed over the skipped frames.
      terminated: Whether a life or the game was lost.
      truncated: Whether the game's limit of frames was reached.
    """

    screen: np.ndarray
    reward: float
    terminated: bool
    truncated: bool


class AtariGame:
    """One emulator, which does the work of SB3's chain of wrappers in one place.

    Attributes:
      num_actions: Size of the game's own (minimal) action set.
      finished: Scores of games that ended. The owner removes them.
    """

    def __init__(self, game: str, max_frames: int):
        """Starts an emulator.

        Args:
          game: ALE's name of the game, for example "breakout".
          max_frames: Frames after which a game is cut off.
        """
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # ALE would print a greeting.
        self._ale = ale_py.ALEInterface()
        self._ale.setFloat("repeat_action_probability", 0.0)
        self._ale.setInt("max_num_frames_per_episode", max_frames)
        rom = ale_py.roms.get_rom_path(game)
        assert rom is not None  # ale_py brings the files of all registered games.
        self._rom = rom
        self._ale.loadROM(rom)
        self._actions = self._ale.getMinimalActionSet()
        self.num_actions = len(self._actions)
        self._fires = ale_py.Action.FIRE in self._actions
        height, width = self._ale.getScreenDims()
        self._screens = np.zeros((2, height, width, 3), np.uint8)
        self._rng = np.random.default_rng()
        self._lives = 0
        self._game_over = True
        self._score = 0.0
        self._frames = 0
        self.finished: list[EpisodeScore] = []

    def seed(self, seed: int) -> None:
        """Seeds emulator and no-op starts as gymnasium's AtariEnv does. A reset must follow."""
        numpy_seed, ale_seed = np.random.SeedSequence(seed).generate_state(n_words=2)
        self._rng = seeding.np_random(int(numpy_seed))[0]
        self._ale.setInt("random_seed", int(np.int32(ale_seed)))
        self._ale.loadROM(self._rom)
        self._game_over = True

    def reset(self) -> np.ndarray:
        """Begins the next episode (the next life, or a new game) and returns the screen."""
        screen = self._next_life()
        if self._fires:
            for action in (FIRE, 2):  # SB3 does this too: some games stand still until then.
                outcome = self.step(action)
                screen = outcome.screen
                if outcome.terminated or outcome.truncated:
                    self._next_life()
        return screen

    def step(self, action: int) -> Outcome:
        """Plays one action."""
        screen, reward = self._play(action)
        terminated = self._game_over and not self._truncated
        # Some games go on for a few frames while they show 0 lives.
        lives = self._ale.lives()
        if 0 < lives < self._lives:
            terminated = True
        self._lives = lives
        return Outcome(screen, reward, terminated, self._game_over and self._truncated)

    def _next_life(self) -> np.ndarray:
        if not self._game_over:
            # One no-op leads from the lost life to the next.
            screen, _ = self._play(NOOP)
        if self._game_over:
            screen = self._new_game()
        self._lives = self._ale.lives()
        return screen

    def _new_game(self) -> np.ndarray:
        self._start()
        for _ in range(self._rng.integers(1, NOOP_MAX + 1)):
            if self._act(NOOP)[1]:
                self._start()
        # SB3 shows the plain last frame here, not the maximum of two.
        return self._gray(self._ale.getScreenRGB())

    def _start(self) -> None:
        self._ale.reset_game()
        self._game_over = self._truncated = False
        self._score = 0.0
        self._frames = 0

    def _play(self, action: int) -> tuple[np.ndarray, float]:
        total = 0.0
        for index in range(FRAME_SKIP):
            reward, over = self._act(action)
            total += reward
            if index >= FRAME_SKIP - 2:
                self._ale.getScreenRGB(self._screens[index - (FRAME_SKIP - 2)])
            if over:
                break
        return self._gray(np.maximum(self._screens[0], self._screens[1])), total

    def _act(self, action: int) -> tuple[float, bool]:
        """Plays one frame, and returns its reward and whether the game ended."""
        reward = self._ale.act(self._actions[action])
        self._score += reward
        self._frames += 1
        if self._ale.game_over(with_truncation=True):
            self._game_over = True
            self._truncated = not self._ale.game_over(with_truncation=False)
            self.finished.append(EpisodeScore(self._score, self._frames))
        return reward, self._game_over

    @staticmethod
    def _gray(rgb: np.ndarray) -> np.ndarray:
        gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
        return cv2.resize(gray, (SCREEN_SIZE, SCREEN_SIZE), interpolation=cv2.INTER_AREA)
