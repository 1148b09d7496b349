"""Fuzzes what becomes of a model message: 100,000 damaged ones, none may get through.

    python -m tests.faults.fuzz_messages --out DIR
    python -m tests.faults.fuzz_messages --inputs 2000

Every input is a whole message, of every precision and form, with a fault of `message_faults`. One
to an actor goes the actor's way: decoded, checked, expanded, packed, loaded, and one observation
computed. One from the learner to the broadcaster goes the broadcaster's way first: decoded,
converted, encoded. It must be refused with a `MessageError`, or, where the fault left a message
that means something (a weight that changed under a fitting checksum), be computed with. Anything
else, and a growth of memory by more than 64 MB, is a failure: it is written to --out, and the exit
code is 1.
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
from actorQ.policy import forms as conversion
from actorQ.policy import inference
from actorQ.policy import model_update
from actorQ.policy import quantization
from actorQ.policy.native import library
from actorQ.wire import messages
from tests.faults import message_faults

_NAME = "fuzz_messages"
_REASON_LENGTH = 60
_PROGRESS_S = 10.0
# A damaged length could ask for gigabytes; what Python and numpy keep for later is far below this.
_MOST_GROWTH = 64 << 20


class Form(NamedTuple):
    """How the whole message is made; see `conversion.to_actor_form`."""

    quantize: int
    communication: int
    weight_compress: bool
    compress: bool
    push: str = ""  # Precision of the learner's message, which is damaged; "": the actor's is.


class Receiver:
    """One actor's end, and the whole messages that it would take."""

    def __init__(self, form: Form, native: bool):
        """Makes weights, a message and the backend.

        Args:
          form: of the message.
          native: compute with the native kernels; else with torch.
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
            update = conversion.to_actor_form(
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
        """Does with a message what broadcaster and actor do; returns the policy's output.

        Raises:
          errors.MessageError: one of them refuses it.
        """
        form = self._form
        update = messages.decode(*message)
        if form.push:
            converted = conversion.for_actors(
                update, form.quantize, form.communication, form.weight_compress
            )
            update = messages.decode(*messages.encode(converted, form.compress))
        messages.check(update, self.architecture.parameter_shapes, self._scheme)
        # Looked at again, in another way: what was let through may be wrong, but not unusable.
        shapes = {name: model_update.shape_of(tensor) for name, tensor in update.tensors.items()}
        if update.scheme != self._scheme or shapes != self.architecture.parameter_shapes:
            raise RuntimeError("weights of another scheme or model were taken")
        if not all(np.isfinite(model_update.to_float32(t)).all() for t in update.tensors.values()):
            raise RuntimeError("weights that are not finite were taken")
        self._backend.load(self._backend.prepare(conversion.expand(update)))
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
    return model_update.ModelUpdate(7, conversion.LEARNER_SCHEME, tensors)


class Tally:
    """What became of the inputs.

    Attributes:
      refused: kind of fault to inputs refused.
      taken: kind of fault to inputs computed with.
      reasons: beginning of a refusal to how often it was given.
      failures: what should not have happened, with what is needed to see it again.
    """

    def __init__(self) -> None:
        """Begins with nothing."""
        self.refused: collections.Counter[str] = collections.Counter()
        self.taken: collections.Counter[str] = collections.Counter()
        self.reasons: collections.Counter[str] = collections.Counter()
        self.failures: list[tuple[str, message_faults.Message]] = []

    def try_one(self, receiver: Receiver, kind: str, message: message_faults.Message) -> None:
        """Gives an input to a receiver and notes what becomes of it."""
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
    """Returns a refusal without what differs from input to input."""
    words = [
        word for word in reason.split()
        if word[0] not in "'\"[({" and not any(c.isdigit() for c in word)
    ]
    return " ".join(words)[:_REASON_LENGTH]


def forms(native: bool) -> Iterator[Form]:
    """Yields every precision, width on the wire, and compression; and of the learner's messages."""
    for quantize in (32, 16, 8, 4) if native else (32, 16, 8):
        for communication in (32, 16, 8, 6, 4, 3, 2):
            if communication == 32 or communication < quantize:
                for weight_compress in (False, True):
                    for compress in (False, True):
                        yield Form(quantize, communication, weight_compress, compress)
                for push in config_lib.PUSH_PRECISIONS:
                    yield Form(quantize, communication, False, False, push)


def fuzz(inputs: int, seed: int, native: bool) -> Tally:
    """Tries so many damaged messages.

    Args:
      inputs: how many, shared out evenly among forms and kinds of faults.
      seed: of what is drawn.
      native: see `Receiver`.
    """
    rng = np.random.default_rng(seed)
    receivers = [Receiver(form, native) for form in forms(native)]
    kinds = list(message_faults.FAULTS)
    tally = Tally()
    next_progress = time.monotonic() + _PROGRESS_S
    for number in range(inputs):
        # The two numbers of receivers and kinds may share a factor: a plain modulo of both would
        # leave pairs out.
        receiver = receivers[(number // len(kinds)) % len(receivers)]
        kind = kinds[number % len(kinds)]
        tally.try_one(receiver, kind, message_faults.draw(kind, receiver.message, rng))
        if time.monotonic() > next_progress:
            next_progress = time.monotonic() + _PROGRESS_S
            timing.progress(f"{number + 1}/{inputs} inputs, {len(tally.failures)} failures")
    # After all that, each still takes a whole message and computes what it did at first.
    for receiver in receivers:
        if not np.array_equal(receiver.take(receiver.message), receiver.first_output):
            tally.failures.append(("afterwards the output is another", receiver.message))
    return tally


def main(argv: Sequence[str]) -> None:
    """Fuzzes and prints what became of the inputs.

    Raises:
      errors.UserError: something got through.
    """
    parser = timing.parser(_NAME, "Fuzzes the decoder of model messages.", repeats=None)
    parser.add_argument(
        "--inputs", type=timing.positive, default=100_000, metavar="N",
        help="damaged messages (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of what is drawn (default: %(default)s)"
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
            f"{len(tally.failures)} inputs were not handled; the first: {tally.failures[0][0]} "
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
