"""Fuzzes the way of a model message: of 100,000 damaged ones none may get through.

    python -m tests.faults.fuzz_messages --out DIR
    python -m tests.faults.fuzz_messages --inputs 2000

Every input is a whole message, of every precision and form, with a fault of `message_faults`. A
message to an actor goes the actor's way: it is decoded, checked, expanded, packed and loaded, and
one observation is computed. A message from the learner goes the broadcaster's way before: it is
decoded, converted and encoded.

A message must be refused with a `MessageError`. It may also be computed with if the fault left a
message that means something, such as another weight under a fitting checksum. Anything else, and a
growth of memory by more than 64 MB, is a failure: it is written to --out, and the exit code is 1.
"""

import collections
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import os
import resource
import time
from typing import NamedTuple

import numpy as np

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import precisions
from actorQ.core import timing
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms as forms_lib
from actorQ.policy import inference
from actorQ.policy import model_update
from actorQ.policy import quantization
from actorQ.policy.native import library
from actorQ.wire import messages
from tests.faults import message_faults

_NAME = "fuzz_messages"
_REASON_LENGTH = 60
_PROGRESS_S = 10.0
# A damaged length could ask for gigabytes. Python and numpy keep far less memory than this.
_MOST_GROWTH = 64 << 20


class Form(NamedTuple):
    """The form of a whole message; see `forms.to_actor_form`."""

    quantize: int
    communication: int
    weight_compress: bool
    compress: bool
    push: str = ""  # Precision of the learner's message if that is damaged; "": the actor's is.


class Receiver:
    """One actor's end, with a whole message that it takes."""

    def __init__(self, form: Form, native: bool):
        """Makes weights, a message and the backend.

        Args:
          form: Form of the message.
          native: Whether to compute with the native kernels instead of torch.
        """
        self.architecture = architecture_lib.PolicyArchitecture((5,), (40, 33), 3, "tanh")
        self._form = form
        rng = np.random.default_rng(0)
        weights = {
            name: rng.normal(size=shape).astype(np.float32)
            for name, shape in self.architecture.parameter_shapes.items()
        }
        if form.push:
            update = _push(weights, form.push)
        else:
            update = forms_lib.to_actor_form(
                weights, 7, form.quantize, form.communication, form.weight_compress
            )
        self.message = message_faults.Message(
            *messages.encode(update, form.compress and not form.push)
        )
        self._scheme = precisions.SCHEMES[form.quantize]
        self._backend = inference.make_backend(
            self.architecture, form.quantize, "native" if native else "pytorch"
        )
        self._observation = rng.normal(size=(1, 5)).astype(np.float32)
        self.first_output = self.take(self.message)

    def take(self, message: message_faults.Message) -> np.ndarray:
        """Takes a message as broadcaster and actor do; returns the policy's output.

        Raises:
          errors.MessageError: One of them refuses it.
        """
        form = self._form
        update = messages.decode(*message)
        if form.push:
            converted = forms_lib.for_actors(
                update, form.quantize, form.communication, form.weight_compress
            )
            update = messages.decode(*messages.encode(converted, form.compress))
        messages.check(update, self.architecture.parameter_shapes, self._scheme)
        # A second look in another way: a message that got through may be wrong, but not unusable.
        shapes = {name: model_update.shape_of(tensor) for name, tensor in update.tensors.items()}
        if update.scheme != self._scheme or shapes != self.architecture.parameter_shapes:
            raise RuntimeError("Weights of another scheme or model were taken.")
        if not all(np.isfinite(model_update.to_float32(t)).all() for t in update.tensors.values()):
            raise RuntimeError("Weights that are not finite were taken.")
        self._backend.load(self._backend.prepare(forms_lib.expand(update)))
        return self._backend(self._observation)


def _push(weights: Mapping[str, np.ndarray], precision: str) -> model_update.ModelUpdate:
    """Returns weights as the learner sends them: names and layouts of TensorFlow."""
    tensors: dict[str, model_update.Tensor] = {}
    for name, array in weights.items():
        layer, _, kind = name.rpartition(".")
        own = np.ascontiguousarray(array.T)
        if precision == messages.BFLOAT16:
            own = model_update.Bfloat16(quantization.to_bfloat16(own))
        tensors[f"{layer}/{kind[0]}"] = own
    return model_update.ModelUpdate(7, forms_lib.LEARNER_SCHEME, tensors)


class Tally:
    """Counts of the inputs by their fate.

    Attributes:
      refused: Number of refused inputs, by kind of fault.
      taken: Number of inputs that were computed with, by kind of fault.
      reasons: Number of refusals, by the beginning of their text.
      failures: Description and message of every failure.
    """

    def __init__(self) -> None:
        """Begins with nothing."""
        self.refused: collections.Counter[str] = collections.Counter()
        self.taken: collections.Counter[str] = collections.Counter()
        self.reasons: collections.Counter[str] = collections.Counter()
        self.failures: list[tuple[str, message_faults.Message]] = []

    def try_one(self, receiver: Receiver, kind: str, message: message_faults.Message) -> None:
        """Gives an input to a receiver and notes the result."""
        try:
            with np.errstate(all="ignore"):  # Weights near the largest number overflow in sums.
                output = receiver.take(message)
        except errors.MessageError as error:
            self.refused[kind] += 1
            self.reasons[_beginning(str(error))] += 1
            return
        except Exception as error:
            self.failures.append((f"{kind}: {type(error).__name__}: {error}", message))
            return
        self.taken[kind] += 1
        if kind in message_faults.ALWAYS_REFUSED:
            self.failures.append((f"{kind}: it was taken for a good message", message))
        elif output.shape != (1, receiver.architecture.num_outputs):
            self.failures.append((f"{kind}: the output has shape {output.shape}", message))


def _beginning(reason: str) -> str:
    """Returns the words of a refusal that do not differ from input to input."""
    words = [
        word for word in reason.split()
        if word[0] not in "'\"[({" and not any(c.isdigit() for c in word)
    ]
    return " ".join(words)[:_REASON_LENGTH]


def forms(native: bool) -> Iterator[Form]:
    """Yields every precision, width on the wire and compression, for both kinds of messages."""
    for quantize in (32, 16, 8, 4, 3) if native else (32, 16, 8):
        for communication in (32, 16, 8, 6, 4, 3, 2):
            if communication == 32 or communication < quantize:
                for weight_compress in (False, True):
                    for compress in (False, True):
                        yield Form(quantize, communication, weight_compress, compress)
                for push in config_lib.PUSH_PRECISIONS:
                    yield Form(quantize, communication, False, False, push)


def fuzz(inputs: int, seed: int, native: bool) -> Tally:
    """Tries damaged messages.

    Args:
      inputs: Number of messages, shared out evenly among forms and kinds of faults.
      seed: Seed of the faults.
      native: Whether to compute with the native kernels instead of torch.
    """
    rng = np.random.default_rng(seed)
    receivers = [Receiver(form, native) for form in forms(native)]
    kinds = list(message_faults.FAULTS)
    tally = Tally()
    next_progress = time.monotonic() + _PROGRESS_S
    for number in range(inputs):
        # The numbers of receivers and kinds may share a factor, so that a plain modulo of both
        # would leave pairs out.
        receiver = receivers[(number // len(kinds)) % len(receivers)]
        kind = kinds[number % len(kinds)]
        tally.try_one(receiver, kind, message_faults.draw(kind, receiver.message, rng))
        if time.monotonic() > next_progress:
            next_progress = time.monotonic() + _PROGRESS_S
            timing.progress(f"{number + 1}/{inputs} inputs, {len(tally.failures)} failures")
    # In the end each receiver must still take a whole message and compute its first output.
    for receiver in receivers:
        if not np.array_equal(receiver.take(receiver.message), receiver.first_output):
            tally.failures.append(("afterwards the output differs", receiver.message))
    return tally


def main(argv: Sequence[str]) -> None:
    """Fuzzes and prints the counts.

    Raises:
      errors.UserError: A damaged message got through.
    """
    parser = timing.parser(_NAME, "Fuzzes the decoder of model messages.", repeats=None)
    parser.add_argument(
        "--inputs", type=timing.positive, default=100_000, metavar="N",
        help="Number of damaged messages (default: %(default)s).",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="Seed of the faults (default: %(default)s)."
    )
    options = parser.parse_args(argv)
    started = time.monotonic()
    memory = _peak_bytes()
    tally = fuzz(options.inputs, options.seed, library.available())
    seconds = time.monotonic() - started
    grown = _peak_bytes() - memory
    if grown > _MOST_GROWTH:
        message = message_faults.Message(*[np.zeros(0, np.uint8)] * 2)
        tally.failures.append((f"memory grew by {grown / 1e6:.0f} MB", message))
    rows = [
        [kind, str(tally.refused[kind] + tally.taken[kind]), str(tally.refused[kind]),
         str(tally.taken[kind])]
        for kind in message_faults.FAULTS
    ]
    total = sum(tally.refused.values()), sum(tally.taken.values())
    rows.append(["all", str(sum(total)), str(total[0]), str(total[1])])
    timing.report(
        _NAME, f"{options.inputs} damaged model messages, {seconds:.0f} s, seed {options.seed}",
        ["fault", "inputs", "refused", "taken (the fault left a message that means something)"],
        rows,
        {
            "inputs": options.inputs, "seed": options.seed, "seconds": seconds,
            "refused": dict(tally.refused), "taken": dict(tally.taken),
            "reasons": dict(tally.reasons.most_common()),
            "failures": [text for text, _ in tally.failures], "grown_bytes": grown,
        },
        options.out,
        notes=[
            f"{len(tally.failures)} failures (an exception of another kind, or a damaged message "
            "taken for a good one).",
            f"The process's peak memory grew by {grown / 1e6:.0f} MB.",
        ],
        more=[(
            "Why they were refused", ["reason", "inputs"],
            [[reason, str(count)] for reason, count in tally.reasons.most_common()],
        )],
    )
    if tally.failures:
        where = _save(tally.failures, options.out) if options.out else "give --out to keep them"
        raise errors.UserError(
            f"{len(tally.failures)} inputs were not handled. The first: {tally.failures[0][0]} "
            f"({where})."
        )


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _save(failures: Sequence[tuple[str, message_faults.Message]], out: str) -> str:
    path = os.path.join(out, "failures.npz")
    arrays = {}
    for index, (_, message) in enumerate(failures[:100]):
        arrays[f"header_{index}"], arrays[f"blob_{index}"] = message
    np.savez(path, **arrays)
    return path


if __name__ == "__main__":
    timing.run(_NAME, main)
