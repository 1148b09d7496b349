"""A stand-in for the original ActorQ's path of weights, to measure ours against.

It was written from a description of that path, not from the original's code. The learner pickles
fp32 weights into Reverb. The broadcaster loads them into a torch model, quantizes it and pickles
its state_dict. Every actor pulls each 30 steps, between two of them, whether the weights are new
or not. Everything unpickled here was pickled by this benchmark. `remote.Remote` calls these
functions, which import frameworks late; `parameter_sides` has the product's forms of them.
"""

import functools
import pickle
import threading
import time
from typing import Any

import numpy as np

from actorQ.benchmarks import parameter_sides
from actorQ.core import config as config_lib
from actorQ.core import telemetry

_VERSION = "version"  # As in the original, the version travels among the weights.
_HEADER = np.zeros(1, np.uint8)

_updates: dict[str, dict[str, float]] = {}


def push(config: config_lib.RunConfig, version: int) -> dict[str, float]:
    """Pushes the learner's weights once; see `parameter_sides.push`."""
    started = time.monotonic()
    variables = parameter_sides.learner_policy(config.model_sizes).named_variables()
    weights = {name: variable.numpy() for name, variable in variables.items()}
    taken = time.monotonic()
    blob = _pickled({**weights, _VERSION: version})
    pickled = time.monotonic()
    _connection(config).client.insert((_HEADER, blob), {config.broadcaster_table_name: 1.0})
    end = time.monotonic()
    return {
        "started": started, "push_end": end, "snapshot_s": taken - started,
        "push_encode_s": pickled - taken, "push_insert_s": end - pickled,
    }


def make_broadcaster(config: config_lib.RunConfig) -> None:
    """Starts the broadcaster of a side, on a thread."""
    threading.Thread(target=_broadcast, args=(config,), daemon=True).start()


def last_update(config: config_lib.RunConfig) -> dict[str, float]:
    """Returns the seconds of the broadcaster's newest update, named as the product logs them."""
    return _updates.get(config.logpath, {})


def _broadcast(config: config_lib.RunConfig) -> None:
    import torch

    from actorQ.policy import torch_policy

    torch.set_num_threads(1)
    client = _connection(config).client
    model = torch_policy.Policy(parameter_sides.architecture_of(config.model_sizes)).eval()
    while True:
        blob = _sample(client, config.broadcaster_table_name)
        arrived = time.monotonic()
        weights = pickle.loads(blob)
        version = weights.pop(_VERSION)
        decoded = time.monotonic()
        state = {}
        for name, array in weights.items():
            layer, _, kind = name.partition("/")
            state[f"{layer}.{'weight' if kind == 'w' else 'bias'}"] = torch.from_numpy(array.T)
        model.load_state_dict(state)
        quantized = torch_policy.quantize_linears(model, config.quantize)
        converted = time.monotonic()
        state = quantized.state_dict()
        state[_VERSION] = version
        message = _pickled(state)
        encoded = time.monotonic()
        client.insert((_HEADER, message), {config.model_table_name: 1.0})
        inserted = time.monotonic()
        _updates[config.logpath] = {
            "model_version": version, "arrived": arrived, "decode_s": decoded - arrived,
            "convert_s": converted - decoded, "encode_s": encoded - converted,
            "insert_s": inserted - encoded, "message_bytes": message.size,
            "fp32_bytes": sum(array.nbytes for array in weights.values()),
        }


class Actor:
    """Pulls between two steps, and only learns from the loaded weights whether they are new.

    Attributes:
      timings: Seconds of each phase so far.
      version: Version of the weights in use.
    """

    def __init__(self, config: config_lib.RunConfig):
        import torch

        from actorQ.policy import torch_policy

        torch.set_num_threads(1)
        self._torch = torch
        self._client = _connection(config).client
        self._table = config.model_table_name
        self._policy = torch_policy.make_policy(
            parameter_sides.architecture_of(config.model_sizes), config.quantize
        )
        self.timings = telemetry.no_seconds()
        self.version = -1

    def infer(self, observation: np.ndarray) -> np.ndarray:
        """Returns the policy's output."""
        with self._torch.no_grad():
            return self._policy(self._torch.from_numpy(observation)).numpy()

    def between_steps(self, look: bool) -> None:
        """Pulls and loads weights, if `look` says so."""
        if not look:
            return
        clock, timings = time.monotonic, self.timings
        started = clock()
        blob = _sample(self._client, self._table)
        pulled = clock()
        state = pickle.loads(blob)
        self.version = state.pop(_VERSION)
        unpickled = clock()
        self._policy.load_state_dict(state)
        timings["pull_s"] += pulled - started
        timings["deserialize_s"] += unpickled - pulled
        timings["load_state_dict_s"] += clock() - unpickled


def _pickled(state: Any) -> np.ndarray:
    return np.frombuffer(pickle.dumps(state), np.uint8)


def _sample(client: Any, table: str) -> bytes:
    (_, blob) = next(client.sample(table, emit_timesteps=False)).data
    return np.asarray(blob)[0].tobytes()


@functools.cache
def _connection(config: config_lib.RunConfig) -> Any:
    from actorQ.wire import connection

    return connection.Connection(config)
