"""Fetches agents of rl-baselines3-zoo from its hub, huggingface.co/sb3."""

import itertools
import pathlib
import shutil

from absl import logging

from actorQ.core import errors
from baseline.agents import finding
from baseline.agents import saving
from baseline.agents import zoo_files
from baseline.tasks import environments

ORGANIZATION = "sb3"
_DOWNLOADS = ".downloads"
_TIMEOUT_S = 10.0


def fetch(
    algo: str, env_id: str, folder: str | pathlib.Path, organization: str = ORGANIZATION
) -> None:
    """Downloads an agent into a folder of the zoo's layout, if there is none of its name yet.

    What is fetched is no more trusted than other files: see `zoo_files`.

    Args:
      algo: a2c, ppo, dqn, ddpg, td3, sac; ppo2 means ppo.
      env_id: environment, as the agent is called there.
      folder: gets ALGO/ENV_<n>, whole or not at all; the number is the first that is free.
      organization: whose agent.

    Raises:
      errors.UserError: there is no such agent, or no network.
    """
    algo = finding.check_algo(algo)
    environments.check_name(env_id)
    if finding.has(algo, env_id, folder):
        return
    name = zoo_files.file_name(env_id)
    repository = f"{organization}/{algo}-{name}"
    logging.info("Fetching %s %s from huggingface.co/%s.", algo, env_id, repository)
    there = _filenames(repository)
    wanted = {f"{algo}-{name}.zip": f"{name}.zip", "vec_normalize.pkl": zoo_files.NORMALIZATION}
    wanted.update((filename, filename) for filename in zoo_files.SETTINGS_FILENAMES)
    if f"{algo}-{name}.zip" not in there:
        raise errors.UserError(f"huggingface.co/{repository} holds no agent.")
    # A training that has just begun has a folder, but no agent in it yet.
    targets = (pathlib.Path(folder, algo, f"{name}_{number}") for number in itertools.count(1))
    target = next(target for target in targets if not target.exists())
    with saving.whole_folder(target) as draft:
        (draft / name).mkdir()
        for filename, called in wanted.items():
            if filename in there:
                place = draft if called.endswith(".zip") else draft / name
                shutil.move(_download(repository, filename, draft / _DOWNLOADS), place / called)
        shutil.rmtree(draft / _DOWNLOADS, ignore_errors=True)


def _filenames(repository: str) -> list[str]:
    import huggingface_hub
    from huggingface_hub import errors as hub_errors

    try:
        # The first question: unlike downloads, it is not asked again and again.
        facts = huggingface_hub.HfApi().model_info(repository, timeout=_TIMEOUT_S)
    except hub_errors.RepositoryNotFoundError:
        raise errors.UserError(f"There is no agent huggingface.co/{repository}.") from None
    except Exception as error:  # Of whichever library carries it.
        raise _unreachable(repository, error) from None
    return [file.rfilename for file in facts.siblings or []]


def _download(repository: str, filename: str, folder: pathlib.Path) -> str:
    import huggingface_hub

    try:
        return huggingface_hub.hf_hub_download(repository, filename, local_dir=folder)
    except Exception as error:  # Of whichever library carries it.
        raise _unreachable(repository, error) from None


def _unreachable(repository: str, error: Exception) -> errors.UserError:
    return errors.UserError(
        f"Cannot fetch huggingface.co/{repository} ({type(error).__name__}): is there a network?"
    )
