"""Times to a reward, and ratios of them, of runs that may not have reached it."""

import dataclasses

from actorQ.core import output


@dataclasses.dataclass(frozen=True)
class Reach:
    """When a curve first reached a return, or that it did not within its time."""

    seconds: float  # Of the whole curve if not reached.
    evaluation_s: float  # What evaluation took of the learner's time until then.
    reached: bool

    def text(self) -> str:
        """Returns '40.0', or '> 812.0' if the return was not reached."""
        return at_least_unless(self.seconds, self.reached)


@dataclasses.dataclass(frozen=True)
class Speedup:
    """A ratio of times, or a bound on it."""

    value: float
    bound: str = ""  # ">" or "<" if one side did not reach the return, "?" if neither did.

    def text(self) -> str:
        """Returns '2.50', '> 1.90' or 'n/a'."""
        if self.bound == "?":
            return output.NOT_AVAILABLE
        return f"{self.bound} {output.number(self.value, 2)}".strip()


def speedup_between(fp32: Reach, other: Reach) -> Speedup:
    """Returns how much sooner than fp32 another precision was there, or a bound on that."""
    bound = {
        (True, True): "",
        (False, True): ">",  # fp32 would take longer than we waited.
        (True, False): "<",
        (False, False): "?",
    }[fp32.reached, other.reached]
    ratio = fp32.seconds / other.seconds if other.seconds > 0 else float("nan")
    return Speedup(ratio, bound)


def at_least_unless(seconds: float, exact: bool) -> str:
    """Returns '40.0', or '> 40.0' where that is only a bound."""
    return output.number(seconds) if exact else f"> {output.number(seconds)}"
