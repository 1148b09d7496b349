"""Loads the agent that a user names by its path."""

import contextlib
import pathlib
import re

from actorQ.core import errors
from actorQ.policy import saved
from baseline.agents import actorq
from baseline.agents import agent as agent_lib
from baseline.agents import finding
from baseline.agents import zoo_files
from baseline.tasks import environments


def load(path: str, algo: str | None = None, env_id: str | None = None) -> agent_lib.Agent:
    """Loads an agent by its path.

    Args:
      path: Stable-Baselines3's zip in the zoo's layout (FOLDER/ALGO/ENV_<n>/ENV.zip, or
        best_model.zip there) or its folder, another zip of it, or an ActorQ run or its checkpoint.
      algo: The zip's algorithm; None: its args.yml or its place tells.
      env_id: The zip's environment; None: its args.yml or its name tells.

    Raises:
      errors.UserError: There is none, or it cannot be loaded.
    """
    found = pathlib.Path(path).absolute()
    if not found.exists():
        raise errors.UserError(f"There is no agent at {path}: there is no such file or folder.")
    if found.is_dir():
        name = re.sub(r"_\d+$", "", found.name)
        zips = [found / f"{stem}.zip" for stem in (found.name, name)]
        found = next((candidate for candidate in zips if candidate.is_file()), found)
    if found.suffix == ".zip":
        return _load_zip(found, algo, env_id)
    if algo is not None or env_id is not None:
        raise errors.UserError(
            f"--algo and --env are for zips of Stable-Baselines3, and {path} is none."
        )
    try:
        checkpoint = saved.load_policy(str(found))
    except errors.UserError as error:
        raise errors.UserError(
            f"{path} is neither an agent's zip (ALGO/ENV_<n>/ENV.zip) or its folder, nor an "
            f"ActorQ run: {error}"
        ) from None
    return actorq.load(checkpoint.algorithm, str(checkpoint.facts["taskstr"]), found)


def _load_zip(path: pathlib.Path, algo: str | None, env_id: str | None) -> agent_lib.Agent:
    if finding.stopped_early(path):
        finding.warn_of_stopped(path)
    if env_id is None:
        env_id = _environment(path)
    noted = zoo_files.read_yaml(finding.settings_folder(env_id, path) / "args.yml").get("algo")
    if algo is not None or noted is not None:  # `check_algo` has a message for other algorithms.
        return finding.load_file(finding.check_algo(str(algo or noted)), env_id, path)
    for folder in (path.parent.parent.name, path.parent.name):
        finding.check_refused(folder)
        with contextlib.suppress(errors.UserError):
            algo = finding.check_algo(str(folder))
            break
    else:
        raise errors.UserError(
            f"Which algorithm is {path} of? Say it: --algo={finding.ALGORITHMS[0]}, for example."
        )
    return finding.load_file(algo, env_id, path)


def _environment(path: pathlib.Path) -> str:
    """Returns the environment of a zip by the files beside it, or by its name.

    Raises:
      errors.UserError: None of them tells it.
    """
    noted = zoo_files.read_yaml(path.parent / "args.yml").get("env")  # As on the zoo's hub.
    if isinstance(noted, str):
        return noted
    settings = [found.parent.name for found in path.parent.glob("*/args.yml")]
    only = settings if len(settings) == 1 else []
    for name in (path.stem, *only, re.sub(r"_\d+$", "", path.parent.name)):
        env_id = zoo_files.environment_name(path.parent / name)
        if environments.may_exist(env_id):
            return env_id
    raise errors.UserError(
        f"Which environment is {path} of? Say it: --env=CartPole-v1, for example."
    )
