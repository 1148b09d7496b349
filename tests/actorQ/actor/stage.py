"""A real server and one real actor, for the tests in this folder."""

import dataclasses
import threading

import numpy as np

from actorQ.actor import process as actor_process
from actorQ.core import config as config_lib
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.wire import connection
from actorQ.wire import messages
from actorQ.wire import replay
from actorQ.wire import server
from tests.actorQ import harness


class Stage:
    """A real server and one real actor, in this process."""

    def __init__(self, tmp_path, **settings):
        defaults = {
            "taskstr": "gym,Pendulum-v1", "model_str": "4", "quantize": 32, "port": 0,
            "logpath": str(tmp_path), "max_episode_steps": 40, "log_period_s": 0.05,
        }
        self.config = config_lib.RunConfig(**{**defaults, **settings})
        discrete = "CartPole" in self.config.taskstr
        self.folder = tmp_path / "actor_1"
        self.layout = replay.Layout((4 if discrete else 3,), False, 1, discrete)
        tables = server.make_tables(self.config, self.layout, prioritized=False)
        self.server = server.start_server(self.config, tables)
        address = f"localhost:{self.server.port}"
        self.connection = connection.Connection(self.config, address)
        self.actor = actor_process.ActorProcess(
            config_lib.RunConfig(**{**defaults, **settings, "server_address": address})
        )

    def serve_again(self):
        """Starts a new server at the address of the one that was stopped."""
        self.server = server.start_server(
            dataclasses.replace(self.config, port=self.server.port),
            server.make_tables(self.config, self.layout, prioritized=False),
        )
        # Every process waits like this: the first insert after the old server's end may fail.
        self.connection = connection.Connection(self.config, self.connection.address)

    def publish(self, version):
        shapes = architecture_lib.PolicyArchitecture(
            self.layout.observation_shape, (4,), 2 if self.layout.discrete else 1,
            architecture_lib.Q_VALUES_HEAD if self.layout.discrete else architecture_lib.TANH_HEAD,
        ).parameter_shapes
        rng = np.random.default_rng(version)
        weights = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
        update = forms.to_actor_form(weights, version, self.config.quantize)
        self.connection.publish(self.config.model_table_name, messages.encode(update))

    def act(self, transitions):
        """Lets the actor act until replay holds so many transitions; returns samples of them."""
        if self.actor._weights.version < 0:
            self.publish(0)
            assert self.actor.connect()
        self.actor._stop.clear()
        acting_thread = threading.Thread(target=self.actor.act)
        acting_thread.start()
        harness.poll(
            lambda: self.connection.status().transitions_inserted >= transitions, 60, 0.001
        )
        self.actor.stop()
        acting_thread.join(20)
        self.actor._writer.flush()
        # So many more than replay has that the rare ones, at an episode's end, are among them.
        samples = self.connection.client.sample(
            self.config.replay_table_name, 3000, emit_timesteps=False
        )
        return self.layout.unpack(np.stack([np.asarray(sample.data[0]) for sample in samples]))

    def close(self):
        self.server.stop()


def running(made):
    """Runs a stage's actor on a thread; returns the thread, and a list for its exit code."""
    made.publish(0)
    done = []
    thread = threading.Thread(target=lambda: done.append(made.actor.run()))
    thread.start()
    harness.poll(lambda: made.actor.loop.steps > 20)
    return thread, done
