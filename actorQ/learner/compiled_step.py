"""Makes Acme's learner step one program of XLA, and puts several steps into one call.

Acme's own function is traced, so that it stays the definition of a step. Two things stay outside of
the program, because XLA cannot have them on a GPU: batches from replay, and the int32 count of
steps.

Learner's process only; imports TensorFlow, no torch.
"""

from collections.abc import Callable
from collections.abc import Mapping
import time
from typing import Any

from absl import logging
import tensorflow as tf

from actorQ.learner import dataset


class _Count:
    """Stands for the learner's count of steps while a program is traced."""

    def __init__(self, value: tf.Tensor):
        """Takes the number of steps before this one."""
        self._value = value

    def assign_add(self, amount: int) -> None:
        """Counts this step; `CompiledStep` moves the variable."""
        self._value += amount

    def __mod__(self, other: Any) -> tf.Tensor:
        return self._value % other

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
        del dtype, name
        return self._value


class CompiledStep:
    """Takes the place of `_step` in one of Acme's learners.

    A call fetches batches from replay and hands them to the program. A loop inside of the program
    makes the steps, one after the other, as so many calls of Acme's own step would. Only DQN's
    priorities come later: all batches of a call are drawn before any of its steps.
    """

    def __init__(
        self, learner: Any, steps_per_call: int, jit_compile: bool, must_compile: bool = True
    ):
        """Takes the place; nothing is traced before the first call.

        Args:
          learner: Acme's learner, whose iterator is a `dataset.BatchIterator`.
          steps_per_call: Learner steps in one call.
          jit_compile: Whether XLA compiles the program.
          must_compile: Whether the first call fails where XLA does. Otherwise a warning says so,
            and the step stays TensorFlow's graph.
        """
        self._learner = learner
        self._batches: dataset.BatchIterator = learner._iterator
        self._steps_per_call = steps_per_call
        self._must_compile = must_compile
        self._compiles = jit_compile  # Within the next call.
        self._acme_step: Callable[[Any], dict[str, tf.Tensor]] = (
            type(learner)._step.python_function
        )
        self._program = self._make_program(jit_compile)
        self._fetch = tf.function(self._fetch_batches, autograph=False)
        learner._step = self

    def __call__(self) -> dict[str, tf.Tensor]:
        """Makes the steps.

        Returns:
          Losses of the last step. If the algorithm has priorities: keys and priorities of all
          steps, one after the other.
        """
        count, batches = self._learner._num_steps, self._fetch()
        call = self._call_first if self._compiles else self._program
        fetches = call(batches, count.read_value())
        count.assign_add(self._steps_per_call)
        if self._steps_per_call == 1:
            return dict(fetches)
        return {
            name: values[-1] if values.shape.rank == 1 else tf.reshape(values, [-1])
            for name, values in fetches.items()
        }

    def _call_first(self, batches: Any, count: tf.Tensor) -> dict[str, tf.Tensor]:
        """Makes the steps of the first call, within which XLA compiles the program.

        Raises:
          tf.errors.OpError: It cannot, and must.
        """
        self._compiles, started = False, time.perf_counter()
        try:
            fetches = self._program(batches, count)
        except tf.errors.OpError as error:  # A GPU's toolkit may be missing.
            if self._must_compile:
                raise
            logging.warning(
                "XLA cannot compile the learner's step, which stays TensorFlow's graph: %s",
                str(error).split("\n", 1)[0],
            )
            self._program = self._make_program(jit_compile=False)
            return self._program(batches, count)
        logging.info("XLA compiled the learner's step in %.1f s.", time.perf_counter() - started)
        return fetches

    def _make_program(self, jit_compile: bool) -> Callable[..., dict[str, tf.Tensor]]:
        make = self._make_step if self._steps_per_call == 1 else self._make_steps
        program: Callable[..., dict[str, tf.Tensor]] = tf.function(
            make, autograph=False, jit_compile=jit_compile
        )
        return program

    def _fetch_batches(self) -> Any:
        """Returns the next batch, or several of them as [steps, B, ...]."""
        samples = [self._batches.fetch() for _ in range(self._steps_per_call)]
        if len(samples) == 1:
            return samples[0]
        return tf.nest.map_structure(lambda *parts: tf.stack(parts), *samples)

    def _make_step(self, sample: Any, count: tf.Tensor) -> dict[str, tf.Tensor]:
        """Traces Acme's step with this batch, after so many steps."""
        learner, variable = self._learner, self._learner._num_steps
        learner._num_steps = _Count(count)
        try:
            with self._batches.handing(sample):
                # A new function each time: a trace belongs to the batch that it was handed.
                return tf.function(self._acme_step)(learner)
        finally:
            learner._num_steps = variable

    def _make_steps(self, samples: Any, count: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Traces a loop over stacked batches; returns the stacked outputs of its steps."""
        first = tf.nest.map_structure(lambda parts: parts[0], samples)
        traced = tf.function(self._make_step, autograph=False).get_concrete_function(first, count)
        outputs = tf.nest.map_structure(
            lambda output: tf.TensorSpec(output.shape, output.dtype), traced.structured_outputs
        )
        return tf.map_fn(
            lambda handed: self._make_step(*handed),
            (samples, count + tf.range(self._steps_per_call)),
            fn_output_signature=outputs,
            parallel_iterations=1,
        )
