"""What a resumed run keeps of its launcher's flags."""

from absl import flags
import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.launch import launch_record


@pytest.fixture
def launch_of(tmp_path):
    """Returns what a launch is told in the folder of the test."""

    def call(*arguments, resume=True):
        values = flags.FlagValues()
        for name in ("port", "pin_cpus", "learner_threads"):
            flags.DEFINE_integer(name, 0, "As the launcher has it.", flag_values=values)
        values(["run_multiprocess.sh", *arguments])
        # Of the first launch's plan, if the run is resumed.
        config = config_lib.RunConfig(logpath=str(tmp_path), resume=resume, learner_threads=7)
        return launch_record.of_flags(config, values)

    return call


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ([], [], launch_record.Launch(None, False)),
        (["--learner_threads=3"], [], launch_record.Launch(None, False, 3)),
        (["--learner_threads=3"], ["--learner_threads=0"], launch_record.Launch(None, False, 0)),
        (["--port=8181", "--pin_cpus=1"], [], launch_record.Launch(8181, True)),
        (["--port=8181", "--pin_cpus=1"], ["--port=9000"], launch_record.Launch(9000, True)),
        (["--port=8181", "--pin_cpus=1"], ["--pin_cpus=0"], launch_record.Launch(8181, False)),
        ([], ["--port=9000", "--pin_cpus=1"], launch_record.Launch(9000, True)),
    ],
)
def test_resumed_run_keeps_what_its_launch_was_told(launch_of, tmp_path, first, then, expected):
    launch_record.save(launch_of(*first, resume=False), str(tmp_path))
    assert launch_of(*then) == expected


def test_new_run_knows_nothing_of_another(launch_of, tmp_path):
    launch_record.save(launch_record.Launch(8181, True), str(tmp_path))
    assert launch_of(resume=False) == launch_record.Launch(None, False)


def test_run_without_a_record_was_told_nothing(launch_of):
    assert launch_of() == launch_record.Launch(None, False, 7)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", "\x00", '{"port": "8181", "pin_cpus": true}', '{"port": 8181, "pin_cpus": 1}',
     '{"port": true, "pin_cpus": true}', '{"host": 1}', '{"learner_threads": null}'],
)
def test_damaged_record_of_a_launch_says_what_to_do(launch_of, tmp_path, content):
    (tmp_path / launch_record.FILENAME).write_text(content)
    with pytest.raises(errors.UserError, match="launch.json cannot be read: .* Remove it, and"):
        launch_of()
