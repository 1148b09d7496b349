"""Rows of measured rewards in one CSV file: names, types and formats are defined here only.

Several processes may append at once. The reader takes the last row of equal key, so that a new
measurement replaces an old one. Imports no framework.
"""

from collections.abc import Sequence
import csv
import dataclasses
import errno
import fcntl
import io
import math
import os
import types
import typing
from typing import Any
from typing import ClassVar
from typing import NamedTuple
from typing import TypeVar

from absl import logging
import numpy as np

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.quantization import names
from baseline.study import intervals

CSV_NAME = "ptq.csv"
_RETURN_DIGITS = 7
_CHOICES = {
    "scheme": names.SCHEMES,
    "granularity": names.GRANULARITIES,
    "rounding": quantization.ROUNDINGS,
}


def not_default(**settings: str) -> dict[str, str]:
    """Returns those of `scheme`, `granularity` and `rounding` that are not the default.

    Names of files, titles and printed commands say them.
    """
    return {name: value for name, value in settings.items() if value != _CHOICES[name][0]}


def as_flags(**settings: str) -> str:
    """Returns ' --granularity channel' for `not_default` settings, for the end of a command."""
    return "".join(f" --{name} {value}" for name, value in not_default(**settings).items())


def in_words(**settings: str) -> str:
    """Returns ', channel granularity' for `not_default` settings, for the end of a title."""
    return "".join(f", {value} {name}" for name, value in not_default(**settings).items())


class Key(NamedTuple):
    """Tells the rows of evaluations apart: rows of equal key replace each other."""

    algo: str
    env: str
    bits: str
    scheme: str
    granularity: str
    rounding: str
    seeds: str
    episodes: int


@dataclasses.dataclass(frozen=True)
class Row:
    """One evaluation of one agent at one precision; the fields are the file's columns.

    Attributes:
      algo: one of `finding.ALGORITHMS`, such as "ppo", or ActorQ's "d4pg".
      env: environment.
      bits: "fp32", "fp16", "bf16", or the width "2" to "32".
      scheme: the quantized tensors, one of `names.SCHEMES`.
      granularity: "paper" (a scale per tensor for linear layers, per output channel for
        convolutions) or "channel" (per output channel for both).
      rounding: "nearest" or "floor".
      seeds: seeds of the environments, "0,2,4".
      episodes: number of episodes over all seeds.
      mean: mean of the returns.
      std: sample standard deviation of the returns (divisor N - 1); 0 for a single one.
      error: E = (fp32 - q) / |fp32|; None for fp32 itself, or where its mean is zero.
      error_low: lower end of E's paired bootstrap 95 % interval; None where there is none.
      error_high: upper end of the interval.
      weight_min: smallest of the acting network's weights, as evaluated.
      weight_max: largest of these weights.
      weight_range: difference of the largest and the smallest.
      weight_width: range of the central 99 % of the weights (see `weight_statistics`).
      bytes: size of the weights as stored at this precision.
      seconds: duration of the evaluation.
      note: a remark for readers, one line; often empty.
      commit: commit of the code.
      returns: return of every episode, seed-major: the first seed's come first.
    """

    LATER: ClassVar[tuple[str, ...]] = ()  # Last columns, which older files lack.
    MAKER: ClassVar = (
        ".venv/bin/python -m baseline.ptq ALGO ENV BITS or baseline/benchmark.sh ALGO ENV makes "
        "them"
    )

    algo: str
    env: str
    bits: str
    scheme: str
    granularity: str
    rounding: str
    seeds: str
    episodes: int
    mean: float
    std: float
    error: float | None
    error_low: float | None
    error_high: float | None
    weight_min: float
    weight_max: float
    weight_range: float
    weight_width: float
    bytes: int
    seconds: float
    note: str
    commit: str
    returns: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raises ValueError for values that no evaluation can have."""
        width_order(self.bits)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}, not one of {choices}")
        if not self.returns or len(self.returns) != self.episodes:
            raise ValueError(f"{self.episodes} episodes, but {len(self.returns)} returns")
        numbers = [value for value in dataclasses.astuple(self) if isinstance(value, float)]
        if not all(math.isfinite(number) for number in (*numbers, *self.returns)):
            raise ValueError("a number is not finite")

    @property
    def evaluation(self) -> Key:
        """The agent and how it was quantized and played."""
        return Key(*(getattr(self, name) for name in Key._fields))

    @property
    def key(self) -> tuple[Any, ...]:
        """The columns that tell this row from others."""
        return self.evaluation

    @property
    def interval(self) -> intervals.Interval:
        """E with its interval."""
        return intervals.Interval(self.error, self.error_low, self.error_high)

    @property
    def seed_returns(self) -> list[np.ndarray]:
        """The returns of each seed, split as evenly as possible."""
        return np.array_split(np.asarray(self.returns), len(self.seeds.split(",")))


RowT = TypeVar("RowT", bound=Row)


def columns(kind: type[Row] = Row) -> tuple[str, ...]:
    """Returns the names of a file's columns: the fields of its rows."""
    return tuple(field.name for field in dataclasses.fields(kind))


def measured(
    key: Key,
    returns: Sequence[float],
    fp32_returns: Sequence[float] | None = None,
    **columns: Any,
) -> Row:
    """Returns a row whose statistics are computed from the returns, rounded as in the file.

    Args:
      key: key of the row.
      returns: return of every episode, seed-major.
      fp32_returns: returns of the same starts at full precision; None for fp32 itself.
      **columns: weight_min, weight_max, weight_range, weight_width, bytes, seconds, note, commit.

    Raises:
      ValueError: the returns are not finite, or not paired with fp32's.
    """
    # One side may come from a file, whose rounding must not make equal returns differ.
    values = np.array([_rounded(value) for value in returns])
    error = intervals.Interval(None, None, None)
    if fp32_returns is not None:
        error = intervals.paired([_rounded(value) for value in fp32_returns], values)
    note = columns.pop("note", "")
    if error.reason:
        note = "; ".join(part for part in (note, f"no interval of E: {error.reason}") if part)
    return Row(
        **key._asdict(),
        mean=float(values.mean()),
        std=float(values.std(ddof=1)) if values.size > 1 else 0.0,
        error=error.error,
        error_low=error.low,
        error_high=error.high,
        note=note,
        returns=tuple(float(value) for value in values),
        **columns,
    )


def width_order(bits: str) -> tuple[float, str]:
    """Returns a sort key: fp32 first, then by falling width; halves behind the width 16.

    Raises:
      ValueError: not a precision.
    """
    if bits == names.FP32:
        return (-math.inf, bits)
    if bits in names.HALVES:
        return (-15.5, bits)
    if bits.isdecimal() and quantization.MIN_BITS <= int(bits) <= quantization.MAX_BITS:
        return (-float(bits), bits)
    raise ValueError(
        f"bits is {bits!r}: possible are {names.FP32}, {', '.join(names.HALVES)} and "
        f"{quantization.MIN_BITS} to {quantization.MAX_BITS}"
    )


def append(path: str, row: Row) -> None:
    """Adds a row; makes the folder and the header where they are missing.

    The half row of a process that was killed while writing is cut off, with a warning.

    Raises:
      errors.UserError: the file cannot be written, or has other columns.
    """
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # Until the file is closed.
            file.seek(0)
            content = file.read()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                logging.warning(
                    "%s: the last line is incomplete and is cut off: %.60r",
                    path, content[whole:],
                )
                file.truncate(whole)
            line = _format(row)
            if whole:
                header = content[:whole].decode(errors="replace").splitlines()[0]
                if _check_header(path, header, type(row)):
                    _add_columns(path, content[:whole], type(row))
            else:
                line = _line(columns(type(row))) + line
            data = line.encode()
            if file.write(data) < len(data):  # One write; `a` puts it at the end.
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise errors.UserError(f"Cannot write {path}: {error.strerror}.") from error


def read(path: str, kind: type[RowT] = Row) -> list[RowT]:  # type: ignore[assignment]
    """Returns the rows, the last of equal key only, in order of first appearance.

    A last line without its end, of a process that was killed, is left out with a warning.

    Classes of rows with further columns are subclasses of `Row`.

    Raises:
      errors.UserError: there is no such file, a line is damaged, or the columns are others.
    """
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            content = file.read()
    except FileNotFoundError as error:
        raise errors.UserError(
            f"There are no results in {path}: {kind.MAKER}."
        ) from error
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror}.") from error
    lines = content.decode("utf-8-sig", errors="replace").split("\n")
    if lines.pop():
        logging.warning("%s: the last line is incomplete and is left out.", path)
    if not lines:
        raise errors.UserError(f"{path} is empty: delete it and measure again.")
    lacking = "," * len(_check_header(path, lines[0], kind))
    rows: dict[Any, RowT] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        try:
            row = _parse(line.rstrip("\r") + lacking, kind)
        except (ValueError, csv.Error) as error:
            raise errors.UserError(
                f"{path}, line {number} is damaged ({error}): delete the line and measure that "
                "row again."
            ) from error
        rows[row.key] = row
    return list(rows.values())


def read_files(
    paths: Sequence[str], kind: type[RowT] = Row  # type: ignore[assignment]
) -> list[RowT]:
    """Returns the rows of several files as if they were one; see `read`.

    Raises:
      errors.UserError: as `read`, or no file is named, or two files hold rows of different agents
        of one name.
    """
    if not paths:
        raise errors.UserError("--results names no file.")
    rows: dict[Any, RowT] = {}
    agents: dict[tuple[str, str], tuple[str, tuple[float, float]]] = {}
    for path in paths:
        for row in read(path, kind):
            rows[row.key] = row
            if kind is not Row or row.bits != names.FP32:  # Other kinds' agents share names.
                continue
            weights = row.weight_min, row.weight_max
            first, expected = agents.setdefault((row.algo, row.env), (path, weights))
            if first != path and weights != expected:
                raise errors.UserError(
                    f"{first} and {path} hold rows of two agents of the name {row.algo} "
                    f"{row.env}: name one of both files."
                )
    return list(rows.values())


def measured_rows(path: str, kind: type[RowT]) -> dict[Any, RowT]:
    """Returns the rows that exist by key; an absent file has none. Raises as `read`."""
    return {row.key: row for row in read(path, kind)} if os.path.exists(path) else {}


def has_columns(path: str, kind: type[Row]) -> bool:
    """Returns whether there is a file whose columns are those of a kind of rows."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            found = _column_names(file.readline())
            return found == columns(kind) or found == _older(kind)
    except OSError:
        return False


def find(rows: Sequence[RowT], **key: Any) -> list[RowT]:
    """Returns the rows whose columns have the given values, e.g. `algo="ppo", bits="8"`."""
    return [
        row for row in rows if all(getattr(row, name) == value for name, value in key.items())
    ]


def _older(kind: type[Row]) -> tuple[str, ...]:
    """Returns the columns of files that lack the later ones."""
    return tuple(name for name in columns(kind) if name not in kind.LATER)


def _add_columns(path: str, content: bytes, kind: type[Row]) -> None:
    """Gives a locked file of whole lines the later columns, empty, in one write.

    There is no draft to rename: other processes wait for the lock of this very file.
    """
    first, *lines = (line.rstrip(b"\r") for line in content.removesuffix(b"\n").split(b"\n"))
    more = "".join(f",{name}" for name in kind.LATER)
    lines = [line + b"," * len(kind.LATER) if line.strip() else line for line in lines]
    data = b"".join(line + b"\n" for line in (first + more.encode(), *lines))
    with open(path, "r+b", buffering=0) as file:
        if file.write(data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        file.truncate()  # Lines may have ended with two characters.


def _check_header(path: str, line: str, kind: type[Row]) -> tuple[str, ...]:
    """Returns the later columns that a file lacks; raises an error of the user for other ones."""
    expected = columns(kind)
    found = _column_names(line)
    if found == expected:
        return ()
    if found == _older(kind):
        return kind.LATER
    lacking = [name for name in expected if name not in found]
    unknown = [name for name in found if name not in expected]
    raise errors.UserError(
        f"{path} has other columns than this version's (lacking: {', '.join(lacking) or 'none'}; "
        f"unknown: {', '.join(unknown)[:80] or 'none'}): move it away and measure again."
    )


def _column_names(header: str) -> tuple[str, ...]:
    return tuple(header.removeprefix("\ufeff").strip().split(","))


def _line(cells: Sequence[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()


def _digits(value: float) -> str:
    return f"{value:.{_RETURN_DIGITS}g}"


def _rounded(value: float) -> float:
    return float(_digits(value))


def _format(row: Row) -> str:
    cells = []
    for name in columns(type(row)):
        value = getattr(row, name)
        if value is None:
            cells.append("")
        elif name == "returns":
            cells.append(" ".join(map(_digits, value)))
        elif name == "seconds":
            cells.append(f"{value:.3f}")
        elif isinstance(value, float):
            cells.append(f"{value:.8g}")
        else:
            # Line breaks would make two damaged rows of one.
            cells.append(" ".join(str(value).split()))
    return _line(cells)


def _parse(line: str, kind: type[RowT]) -> RowT:
    csv.field_size_limit(2**31 - 1)  # The returns of many episodes exceed the default.
    (cells,) = csv.reader([line], strict=True)
    fields = dataclasses.fields(kind)
    if len(cells) != len(fields):
        raise ValueError(f"{len(cells)} cells instead of {len(fields)}")
    return kind(**{
        field.name: _value(field.name, field.type, cell)
        for field, cell in zip(fields, cells, strict=True)
    })


def _value(name: str, kind: Any, cell: str) -> Any:
    try:
        if name == "returns":
            return tuple(float(number) for number in cell.split())
        if kind is str:
            return cell
        if not cell and types.NoneType in typing.get_args(kind):
            return None
        return int(cell) if kind in (int, int | None) else float(cell)
    except ValueError:
        raise ValueError(f"{name} is {cell[:30]!r}") from None
