"""Plays a trained agent, quantized or not, and can film it.

    python -m baseline.enjoy --algo ALGO --env ENV --folder FOLDER [--no-render] [-n STEPS]

`--folder quantized/8` plays what `baseline.ptq` left there.
"""

import contextlib
import os
from typing import TYPE_CHECKING

from absl import flags
from absl import logging
import numpy as np

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import lean_imports
from actorQ.environments import video
from baseline.quantization import names
from baseline.study import measuring_flags

if TYPE_CHECKING:
    from baseline.agents import agent as agent_lib

DEFAULT_FPS = 30.0


def define_flags() -> None:
    """Defines the flags of this tool."""
    flags.DEFINE_string(
        "algo", None, "Algorithm: a2c, ppo, dqn, ddpg, td3, sac, qrdqn, tqc, trpo, maskable_ppo; "
        "for ActorQ: d4pg, dqn."
    )
    flags.DEFINE_string("env", None, "Environment, as in the agent's file name.")
    measuring_flags.define_folder()
    flags.DEFINE_integer("n_timesteps", 1000, "Agent steps to play, >= 1.", 1, short_name="n")
    flags.DEFINE_boolean("render", True, "Show a window.")
    flags.DEFINE_integer("seed", 0, "Seed of the environment, >= 0.", lower_bound=0)
    flags.DEFINE_string("video", "", "File for a film, .mp4 or .gif; empty: no film.")
    flags.mark_flags_as_required(["algo", "env"])


def main(argv: list[str]) -> int:
    """Plays; see `cli.run` for errors."""
    del argv
    values = flags.FLAGS
    cli.quiet_tensorflow()
    with lean_imports.without("tensorboard"):  # SB3 would load TensorFlow with it.
        from actorQ.environments import mujoco_gl
        from baseline.agents import hub
        from baseline.study import row_agents

    algo = names.canonical_algo(values.algo)
    if values.hub:
        hub.fetch(algo, values.env, values.folder)
    agent = row_agents.load_agent(algo, values.env, values.folder)
    how = "full precision"
    if agent.quantization is not None:
        how = f"{agent.quantization[0].bits} bits ({agent.quantization[0].scheme})"
    print(f"{algo} {values.env}, {how}: {agent.path}")
    mode = "rgb_array" if values.video else "human" if values.render else None
    if mode == "human" and not mujoco_gl.has_display():
        raise errors.UserError(
            "There is no display for a window: --no-render plays without a window, and "
            "--video=FILE.mp4 makes a film."
        )
    returns, reward = play(agent, values.n_timesteps, values.seed, mode, values.video)
    if returns:
        print(
            f"Return {np.mean(returns):.2f} +- {np.std(returns):.2f} over {len(returns)} episodes"
        )
    else:
        print(f"No episode ended within {values.n_timesteps} steps; reward so far {reward:.2f}")
    if values.video:
        logging.info("Film: %s", os.path.abspath(values.video))
    return 0


def play(
    agent: "agent_lib.Agent", num_steps: int, seed: int, mode: str | None, path: str
) -> tuple[list[float], float]:
    """Plays agent steps, prints each episode that ends, and makes a film if a path is given.

    Returns:
      The returns of whole episodes, and the reward of the one that was cut.

    Raises:
      errors.UserError: nothing can be drawn, or the film cannot be written.
    """
    import gymnasium as gym

    from baseline.agents import evaluation

    environment = agent.make_env(mode)
    returns: list[float] = []
    with contextlib.closing(environment):
        observation, _ = environment.reset(seed=evaluation.episode_seed(seed, 0))
        fps = environment.get_wrapper_attr("metadata").get("render_fps") or getattr(
            environment, "render_fps", DEFAULT_FPS
        )
        reward_sum, length = 0.0, 0
        try:
            with video.film(path, float(fps)) as on_frame:
                for _ in range(num_steps):
                    if on_frame is not None:
                        on_frame(np.asarray(environment.render()))
                    action = agent.act(observation[None])[0]
                    observation, reward, terminated, truncated, info = environment.step(action)
                    reward_sum, length = reward_sum + float(reward), length + 1
                    if not (terminated or truncated):
                        continue
                    following = evaluation.episode_seed(seed, len(returns) + 1)
                    observation, over = evaluation.begin_next(environment, info, following)
                    if over is not None:
                        returns.append(over)
                        print(f"episode {len(returns)}: return {over:.2f}, {length} steps")
                        reward_sum, length = 0.0, 0
        except ValueError as error:  # The film does not know the file's ending.
            raise errors.UserError(str(error)) from None
        except OSError as error:
            raise errors.UserError(
                f"Cannot write {path}: {error.strerror or errors.summary(error)}."
            ) from None
        except gym.error.Error as error:
            raise errors.UserError(f"Cannot draw {agent.env_id}: {errors.summary(error)}") from None
    return returns, reward_sum


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(measuring_flags)  # --help shows the key flags.
    cli.run(main, name="enjoy")
