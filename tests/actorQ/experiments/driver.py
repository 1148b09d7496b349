"""Runs `actorQ.experiments.run` with the fake launcher; takes the same arguments."""

import pathlib
import sys

from actorQ.core import cli
from actorQ.experiments import command_line
from actorQ.experiments import kinds
from actorQ.experiments import run
from actorQ.experiments import runner
from actorQ.experiments import training

FAKE = pathlib.Path(__file__).with_name("fake_launcher.py")


def use_fake_launcher():
    real = training.Training.command

    def command(self, settings, folder):
        return [sys.executable, str(FAKE), *real(self, settings, folder)[3:]]

    training.Training.command = command
    real_peer = kinds.Peer.command

    def peer_command(self, settings, folder):
        flags = real_peer(self, settings, folder)[4:]
        return [sys.executable, str(FAKE), f"--logdir={folder}", "--run_name=run", *flags]

    kinds.Peer.command = peer_command
    runner._POLL_S = 0.02  # These runs take no time.


if __name__ == "__main__":
    use_fake_launcher()
    command_line.define_flags()
    cli.run(run.main, takes_arguments=True, name=run.NAME)
