"""The state that the learner's main thread and its learning thread share. Imports no framework."""

import dataclasses
import threading
import time


@dataclasses.dataclass
class Progress:
    """Everything that the two threads tell each other.

    The learning thread counts steps and says when it is ready and when it has finished. The main
    thread asks it to stop, or declares training over during a step that does not come back.

    Attributes:
      steps: Learner steps done.
      versions_skipped: Versions of weights that were lost to crashes.
      stop: Set by the main thread when training has to end soon.
      ready: Set by the learning thread once the first weights are pushed, or at its end.
      finished: Set by the learning thread at its end.
      failure: Why training failed; None while it has not.
      starved: Whether the failure is a lack of data; the weights are then sound and are kept.
      step_started: When the step under way began, on time.monotonic's clock; None between steps.
      overtaken: Whether the main thread has ended training during a step.
    """

    steps: int = 0
    versions_skipped: int = 0
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)
    ready: threading.Event = dataclasses.field(default_factory=threading.Event)
    finished: threading.Event = dataclasses.field(default_factory=threading.Event)
    failure: BaseException | None = None
    starved: bool = False
    step_started: float | None = None
    overtaken: bool = False
    # The lock makes `end_step` and `overtake` exclude each other.
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    @property
    def version(self) -> int:
        """Version of the weights as they are now."""
        return self.steps + self.versions_skipped

    @property
    def sound(self) -> bool:
        """Says whether the weights may be kept."""
        return self.failure is None or self.starved

    def begin_step(self) -> None:
        """Notes, on the learning thread, that a step begins."""
        self.step_started = time.monotonic()

    def end_step(self, made: int = 1) -> bool:
        """Counts, on the learning thread, a call of the learner that came back.

        Args:
          made: Learner steps in the call.

        Returns:
          False if the main thread has ended training meanwhile: the steps do not count.
        """
        with self._lock:
            self.step_started = None
            if self.overtaken:
                return False
            self.steps += made
            return True

    def overtake(self, longest_step_s: float) -> bool:
        """Ends training, on the main thread, if the step under way takes too long.

        Returns:
          Whether it did: the main thread is then the only one that changes anything.
        """
        with self._lock:
            started = self.step_started
            self.overtaken = started is not None and time.monotonic() - started > longest_step_s
            return self.overtaken

    def fail(self, failure: BaseException) -> None:
        """Ends training, on the main thread, because of a failure."""
        self.failure = failure
        self.stop.set()
