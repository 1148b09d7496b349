"""An agent of Stable-Baselines3, which is saved in the layout of rl-baselines3-zoo."""

from collections.abc import Mapping
import dataclasses
import pathlib

import gymnasium as gym
from stable_baselines3.common import base_class
from stable_baselines3.common import running_mean_std
from stable_baselines3.common import vec_env
import yaml

from baseline.agents import agent as agent_lib
from baseline.agents import model_building
from baseline.agents import saving
from baseline.agents import zoo_files
from baseline.quantization import schemes


class _Dumper(yaml.SafeDumper):
    """The safe dumper with tuples, written as the zoo does: some wrappers take no lists."""


_Dumper.add_representer(
    tuple, lambda dumper, value: dumper.represent_sequence(zoo_files.YAML_TUPLE, value)
)


@dataclasses.dataclass(kw_only=True)
class ZooAgent(agent_lib.Agent):
    """An agent of Stable-Baselines3.

    Attributes:
      model: SB3's model, whose modules are those of `network`.
      statistics: The statistics of observations by key; those of arrays have the key "observation".
    """

    model: base_class.BaseAlgorithm
    statistics: Mapping[str, zoo_files.Normalization] = dataclasses.field(default_factory=dict)

    def save(self, folder: pathlib.Path) -> pathlib.Path:
        """Writes ALGO/ENV_1 in the zoo's layout; SB3 itself loads it without custom objects.

        The environment's name, configuration, normalization and quantization are written too.

        Returns:
          The zip's path.

        Raises:
          errors.UserError: The folder cannot be written.
        """
        name = zoo_files.file_name(self.env_id)
        target = pathlib.Path(folder, self.algo, f"{name}_1")
        source = self.path.parent / name
        with saving.whole_folder(target) as draft:
            settings = draft / name
            settings.mkdir()
            for filename in zoo_files.SETTINGS_FILENAMES:
                if (source / filename).exists():
                    content = zoo_files.read_yaml(source / filename)
                    (settings / filename).write_text(yaml.dump(content, Dumper=_Dumper))
            if (source / zoo_files.NORMALIZATION).exists():
                self._save_normalization(settings / zoo_files.NORMALIZATION)
            self.write_quantization(settings / schemes.FILENAME)
            with model_building.no_compiler():
                self.model.save(draft / f"{name}.zip")
        return target / f"{name}.zip"

    def _save_normalization(self, path: pathlib.Path) -> None:
        """Writes the statistics as SB3's own class, for SB3's own loader."""
        keyed = isinstance(self.model.observation_space, gym.spaces.Dict)

        def make_env() -> gym.Env:
            environment = self.make_env()
            if not self.network.fields:
                return environment
            assert isinstance(environment, gym.Wrapper)  # It lays observations out as vectors.
            return environment.env

        environment = vec_env.VecNormalize(
            vec_env.DummyVecEnv([make_env]),
            training=False,
            norm_obs=bool(self.statistics),  # Without them, rewards alone were normalized.
            norm_reward=False,
            norm_obs_keys=list(self.statistics) if keyed and self.statistics else None,
        )
        found = {}
        for key, normalization in self.statistics.items():
            environment.clip_obs = float(normalization.clip)
            environment.epsilon = normalization.epsilon
            found[key] = running_mean_std.RunningMeanStd()
            found[key].mean, found[key].var = normalization.mean, normalization.variance
            found[key].count = normalization.num_observations
        if found:
            # SB3's hint knows only the form for dictionaries of observations.
            (first, *_) = found.values()
            environment.obs_rms = found if keyed else first  # type: ignore[assignment]
        environment.save(str(path))
        environment.close()
