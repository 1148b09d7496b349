"""Fetches agents of rl-baselines3-zoo from its hub, huggingface.co/sb3."""

from collections.abc import Iterator
import contextlib
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


def fetch(algo: str, env_id: str, folder: str | pathlib.Path) -> None:
    """Downloads an agent into a folder of the zoo's layout, if there is none of its name yet.

    Fetched files are no more trusted than others: see `zoo_files`.

    Args:
      algo: One of `finding.ALGORITHMS`; ppo2 means ppo.
      env_id: The environment, as in the agent's name on the hub.
      folder: Gets ALGO/ENV_<n>, whole or not at all; the number is the first that is free.

    Raises:
      errors.UserError: There is no such agent, or no network.
    """
    algo = finding.check_algo(algo)
    environments.check_name(env_id)
    if finding.has(algo, env_id, folder):
        return
    import huggingface_hub

    name = zoo_files.file_name(env_id)
    repository = f"{ORGANIZATION}/{algo}-{name}"
    logging.info("Fetching %s %s from huggingface.co/%s.", algo, env_id, repository)
    with _one_line_errors(repository):
        # This request comes first because, unlike downloads, it is not repeated on failure.
        facts = huggingface_hub.HfApi().model_info(repository, timeout=_TIMEOUT_S)
    there = [file.rfilename for file in facts.siblings or []]
    wanted = {
        f"{algo}-{name}.zip": f"{name}.zip", zoo_files.HUB_NORMALIZATION: zoo_files.NORMALIZATION,
    }
    wanted.update((filename, filename) for filename in zoo_files.SETTINGS_FILENAMES)
    if f"{algo}-{name}.zip" not in there:
        raise errors.UserError(f"huggingface.co/{repository} holds no agent.")
    # The folder of a training that has just begun holds no agent yet, and stays as it is.
    targets = (pathlib.Path(folder, algo, f"{name}_{number}") for number in itertools.count(1))
    target = next(target for target in targets if not target.exists())
    with saving.whole_folder(target) as draft:
        (draft / name).mkdir()
        for filename, called in wanted.items():
            if filename in there:
                place = draft if called.endswith(".zip") else draft / name
                with _one_line_errors(repository):
                    downloaded = huggingface_hub.hf_hub_download(
                        repository, filename, local_dir=draft / _DOWNLOADS
                    )
                shutil.move(downloaded, place / called)
        shutil.rmtree(draft / _DOWNLOADS, ignore_errors=True)


@contextlib.contextmanager
def _one_line_errors(repository: str) -> Iterator[None]:
    from huggingface_hub import errors as hub_errors

    try:
        yield
    except hub_errors.RepositoryNotFoundError:
        raise errors.UserError(f"There is no agent huggingface.co/{repository}.") from None
    except Exception as error:  # The hub's transport libraries each have their own.
        raise errors.UserError(
            f"Cannot fetch huggingface.co/{repository} ({type(error).__name__}): is there a "
            "network?"
        ) from None
