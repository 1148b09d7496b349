"""Writes agents in the zoo's layout: a folder is there whole, or not at all."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import random
import shutil
import tempfile
import time
from typing import TYPE_CHECKING

from stable_baselines3.common import vec_env
import yaml

from actorQ.core import errors
from baseline.agents import model_building
from baseline.agents import zoo_files
from baseline.quantization import schemes

if TYPE_CHECKING:
    from baseline.agents import finding

SETTINGS_FILENAMES = ("config.yml", "args.yml", "env_kwargs.yml")
_ATTEMPTS = 10
_ASIDE_S = 0.02  # Longest wait between two of them.
_DRAFT = ".unfinished-"
_ABANDONED_S = 3600.0


class _Dumper(yaml.SafeDumper):
    """The safe dumper, and tuples: some wrappers take no lists. The zoo writes them alike."""


_Dumper.add_representer(
    tuple, lambda dumper, value: dumper.represent_sequence(zoo_files.YAML_TUPLE, value)
)


@contextlib.contextmanager
def whole_folder(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives an empty folder that takes `target`'s place, and its content's, once all is written.

    If it is not, `target` stays as it was.

    Raises:
      errors.UserError: the folder cannot be written.
    """
    draft = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f"{_DRAFT}*"):
            with contextlib.suppress(FileNotFoundError):  # Of a process that just got done.
                if time.time() - left.stat().st_mtime > _ABANDONED_S:  # Its process was killed.
                    shutil.rmtree(left, ignore_errors=True)
        # Beside the target, since a folder can be renamed within one disk only; the name is not
        # that of any agent.
        draft = pathlib.Path(tempfile.mkdtemp(prefix=_DRAFT, dir=target.parent))
        draft.chmod(0o755)
        yield draft
        _replace(draft, target)
    except OSError as error:
        raise errors.UserError(f"Cannot write {target}: {error.strerror or error}.") from None
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _replace(draft: pathlib.Path, target: pathlib.Path) -> None:
    replaced = []
    for attempt in range(_ATTEMPTS):
        old = draft.with_name(f"{draft.name}-old-{attempt}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(target, old)
            replaced.append(old)
        try:
            os.rename(draft, target)
            break
        except OSError:  # Another process was quicker; its agent is replaced as well.
            if attempt == _ATTEMPTS - 1:
                with contextlib.suppress(OSError, IndexError):  # What was there goes back.
                    os.rename(replaced.pop(), target)
                raise
            time.sleep(random.uniform(0.0, _ASIDE_S))  # Out of step with the others.
    for old in replaced:  # Only now: a process may be killed before it is through.
        shutil.rmtree(old, ignore_errors=True)


def save(agent: "finding.Agent", folder: pathlib.Path) -> pathlib.Path:
    """Writes an agent of SB3's, as it is now; SB3 itself loads it without custom objects.

    The environment's name, configuration and normalization go with it, and how it was quantized.

    Args:
      agent: with a model.
      folder: gets ALGO/ENV_1; what was there is replaced.

    Returns:
      The zip's path.

    Raises:
      errors.UserError: the folder cannot be written.
    """
    name = zoo_files.file_name(agent.env_id)
    target = pathlib.Path(folder, agent.algo, f"{name}_1")
    source = agent.path.parent / name
    with whole_folder(target) as draft:
        settings = draft / name
        settings.mkdir()
        for filename in SETTINGS_FILENAMES:
            if (source / filename).exists():
                content = zoo_files.read_yaml(source / filename)
                (settings / filename).write_text(yaml.dump(content, Dumper=_Dumper))
        if (source / zoo_files.NORMALIZATION).exists():
            _save_normalization(agent, settings / zoo_files.NORMALIZATION)
        agent.write_quantization(settings / schemes.FILENAME)
        with model_building.no_compiler():
            agent.model.save(draft / f"{name}.zip")
    return target / f"{name}.zip"


def _save_normalization(agent: "finding.Agent", path: pathlib.Path) -> None:
    """Writes the statistics as SB3's own class, for SB3's own loader."""
    # Where rewards alone were normalized, the file says just that.
    normalization = agent.normalization
    clip = {} if normalization is None else {
        "clip_obs": normalization.clip, "epsilon": normalization.epsilon,
    }
    environment = vec_env.VecNormalize(
        vec_env.DummyVecEnv([agent.make_env]),
        training=False,
        norm_obs=normalization is not None,
        norm_reward=False,
        **clip,
    )
    if normalization is not None:
        environment.obs_rms.mean = normalization.mean
        environment.obs_rms.var = normalization.variance
        environment.obs_rms.count = normalization.count
    environment.save(str(path))
    environment.close()
