"""Rebuilds the few things of a pickle that become themselves: numpy arrays and plain containers.

`safe_pickle` calls nothing else. Every function checks its input from a stranger's file: types,
sizes against the bytes that are there, and the amount that is copied in all.
"""

from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence
import math
import re
from typing import Any

import numpy as np

KEY_NODES = 1000  # Parts of a tuple that is a key: hashing one visits them all.
COPIES_PER_BYTE = 8  # Bytes and items copied for each byte of the file, in all.
COPIES_AT_LEAST = 1 << 20
MAX_AXES = 32
MAX_AXIS = 1 << 40

_DTYPE_CODE = re.compile(r"b1|[iu][1248]|f(2|4|8|16)|c(8|16|32)|O8?")
_PLAIN_KEYS = (str, bytes, float, type(None), np.integer, np.floating)


class DamagedError(Exception):
    """Raised for a file that Python cannot have written as a pickle, or that asks for too much."""


class Inert:
    """A stand-in for a pickled object, of which nothing is imported or run.

    Entries of a recorded state are attributes too (`stats.obs_rms.mean`), dunder names excepted.

    Attributes:
      states: The states that the pickle sets, in order.
      items: The values, or (key, value) pairs, that the pickle puts into the object.
    """

    __slots__ = ("items", "states")

    def __init__(self) -> None:
        self.states: list[Any] = []
        self.items: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and name not in ("states", "items"):
            for state in reversed(self.states):
                # Objects with __slots__ have the pair (dictionary, slots).
                for part in reversed(state) if type(state) is tuple else [state]:
                    if isinstance(part, dict) and name in part:
                        return part[name]
        # repr(self) would look for attributes that a half-made copy has not yet.
        raise AttributeError(f"The pickle's record of this object has no {name!r}.")


class Reference(Inert):
    """A class or function that a pickle names; it is not imported and cannot be called."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        super().__init__()
        self.module = module
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.module}.{self.name}>"


class Placeholder(Inert):
    """The result of a call that was not made: `function(*args, **kwargs)`."""

    __slots__ = ("args", "function", "kwargs")

    def __init__(self, function: Any, args: tuple, kwargs: dict | None = None) -> None:
        super().__init__()
        self.function = function
        self.args = args
        self.kwargs = {} if kwargs is None else kwargs

    def __repr__(self) -> str:
        # The arguments are left out: they may refer to each other without end.
        of = repr(self.function) if isinstance(self.function, Reference) else "<a result>"
        return f"<{of[1:-1]}(...), not called>"


class Allowance:
    """The bytes and items that may still be copied, so that a small file stays small in memory."""

    def __init__(self, file_bytes: int) -> None:
        self._left = COPIES_AT_LEAST + COPIES_PER_BYTE * file_bytes

    def take(self, amount: int) -> None:
        """Takes from the allowance.

        Raises:
          DamagedError: The allowance is used up.
        """
        self._left -= amount
        if self._left < 0:
            raise DamagedError("it asks for far more memory than it has content")


def check_key(key: Any) -> Any:
    """Returns a key of a dictionary or member of a set, if its hash is fast.

    Raises:
      DamagedError: The key has no hash, or one that a stranger could make slow. Nested tuples that
        share their parts take exponential time, and huge integers collide at will.
    """
    parts = [key]
    for count, part in enumerate(parts):
        if count > KEY_NODES:
            raise DamagedError("a key in it has too many parts")
        if type(part) in (tuple, frozenset):
            parts += part
        elif isinstance(part, int):
            if part.bit_length() > 64:
                raise DamagedError("an integer key in it has more than 64 bits")
        elif not isinstance(part, (*_PLAIN_KEYS, Inert)):
            raise DamagedError(f"a {type(part).__name__} cannot be a key")
    return key


def set_items(mapping: dict, flat: Sequence[Any]) -> None:
    """Puts [key, value, key, value, ...] into a dictionary."""
    if len(flat) % 2:
        raise DamagedError("a key has no value")
    for index in range(0, len(flat), 2):
        mapping[check_key(flat[index])] = flat[index + 1]


def set_array_state(array: np.ndarray, state: Any, allowance: Allowance) -> None:
    """Fills an array that `_blank_array` made, in place: the file may refer to it elsewhere.

    Args:
      array: The empty array.
      state: (1, shape, dtype, is_fortran, bytes or list), as ndarray.__reduce__ gives it.
      allowance: The file's allowance.

    Raises:
      DamagedError: The state has another form, or claims other sizes than it has.
    """
    if array.size or type(state) is not tuple or len(state) != 5:
        raise DamagedError("an array in it has no proper content")
    version, shape, dtype, is_fortran, content = state
    if type(content) is str:  # Written by Python 2.
        content = content.encode("latin-1")
    wanted = list if _checked_dtype(dtype).hasobject else bytes
    if version != 1 or type(is_fortran) not in (bool, int) or type(content) is not wanted:
        raise DamagedError("an array in it has no proper content")
    _check_size(shape, 1 if wanted is list else dtype.itemsize, len(content))
    allowance.take(len(content))
    array.__setstate__((1, shape, dtype, bool(is_fortran), content))


def set_dtype_state(dtype: np.dtype, state: Any) -> None:
    """Gives a dtype its byte order.

    Args:
      dtype: A copy that `_dtype` made.
      state: (3, order, None, None, None, -1, -1, flags), as dtype.__reduce__ gives for numbers.

    Raises:
      DamagedError: The state differs. Other flags could make numpy follow bytes as pointers.
    """
    flags = 63 if dtype.hasobject else 0
    orders = [(3, order, None, None, None, -1, -1, flags) for order in "<>|="]
    if type(state) is not tuple or any(type(part) not in (int, str, type(None)) for part in state):
        raise DamagedError("a numpy type in it has no proper state")
    if state not in orders:
        raise DamagedError(f"a numpy type in it has the state {str(state)[:100]}")
    dtype.__setstate__(state)  # type: ignore[attr-defined]  # numpy's stubs lack the method.


def _checked_dtype(dtype: Any) -> np.dtype:
    if not isinstance(dtype, np.dtype):
        raise DamagedError("it holds an array that is not of numbers")
    return dtype


def _check_size(shape: Any, item_size: int, size: int) -> None:
    """Raises DamagedError unless an array of this shape takes `size` bytes (or items)."""
    if (
        type(shape) is not tuple
        or len(shape) > MAX_AXES
        or any(type(axis) is not int or not 0 <= axis < MAX_AXIS for axis in shape)
    ):
        raise DamagedError("an array in it claims an impossible shape")
    if math.prod(shape) * item_size != size:
        claim = " x ".join(str(axis) for axis in shape) or "()"
        raise DamagedError(f"an array in it claims the shape {claim} but has {size} bytes")


def _blank_array(args: tuple, allowance: Allowance) -> Any:
    del allowance
    kind = args[0] if args else None
    if not isinstance(kind, Reference) or (kind.module, kind.name) != ("numpy", "ndarray"):
        return NotImplemented  # Only numpy's code knows the state of a subclass.
    return np.ndarray((0,), np.int8)


def _dtype(args: tuple, allowance: Allowance) -> Any:
    del allowance
    code = args[0] if args else None
    if type(code) is not str or not _DTYPE_CODE.fullmatch(code):
        return NotImplemented
    return np.dtype(code, copy=True)


def _scalar(args: tuple, allowance: Allowance) -> Any:
    if len(args) != 2 or not isinstance(args[0], np.dtype) or args[0].hasobject:
        return NotImplemented
    dtype, content = args
    if type(content) is str:
        content = content.encode("latin-1")
    if type(content) is not bytes or len(content) != dtype.itemsize:
        raise DamagedError("a number in it has no proper content")
    allowance.take(len(content))
    return np.frombuffer(content, dtype)[0]


def _array_of_buffer(args: tuple, allowance: Allowance) -> Any:
    if len(args) != 4 or args[3] not in ("C", "F"):
        return NotImplemented
    content, dtype, shape, order = args
    if type(content) not in (bytes, bytearray) or _checked_dtype(dtype).hasobject:
        raise DamagedError("an array in it has no proper content")
    _check_size(shape, dtype.itemsize, len(content))
    allowance.take(len(content))
    return np.frombuffer(bytes(content), dtype).reshape(shape, order=order)


def _encoded(args: tuple, allowance: Allowance) -> Any:
    if len(args) != 2 or type(args[0]) is not str or args[1] not in ("latin1", "latin-1"):
        return NotImplemented
    allowance.take(len(args[0]))
    return args[0].encode("latin-1")


def _ordered_dict(args: tuple, allowance: Allowance) -> Any:
    made: OrderedDict[Any, Any] = OrderedDict()
    pairs = args[0] if args else []
    if len(args) > 1 or type(pairs) is not list:
        return NotImplemented
    allowance.take(len(pairs))
    for pair in pairs:
        if type(pair) not in (list, tuple):
            return NotImplemented
        set_items(made, [*pair[:3]])
    return made


def _container(kind: type) -> Callable[[tuple, Allowance], Any]:
    def make(args: tuple, allowance: Allowance) -> Any:
        if len(args) > 1 or any(type(arg) not in (list, tuple, set, frozenset) for arg in args):
            return NotImplemented
        items = args[0] if args else ()
        allowance.take(len(items))
        if kind in (set, frozenset):
            return kind(check_key(item) for item in items)
        return kind(items)

    return make


def _byte_string(kind: type) -> Callable[[tuple, Allowance], Any]:
    def make(args: tuple, allowance: Allowance) -> Any:
        if not args:
            return kind()
        if type(args[0]) is str:  # bytearray("...", "latin-1").
            content = _encoded(args, allowance)
            return content if content is NotImplemented else kind(content)
        if len(args) > 1 or type(args[0]) is not bytes:  # bytearray(10**15).
            return NotImplemented
        allowance.take(len(args[0]))
        return kind(args[0])

    return make


# Functions that are called. Each takes arguments and allowance; for arguments that Python does not
# write, it returns NotImplemented. Modules have the names of numpy 1 and 2, Python 2 and 3.
CALLS: dict[tuple[str, str], Callable[[tuple, Allowance], Any]] = {
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encoded,
    ("collections", "OrderedDict"): _ordered_dict,
}
for _core in ("numpy.core", "numpy._core"):
    CALLS[_core + ".multiarray", "_reconstruct"] = _blank_array
    CALLS[_core + ".multiarray", "scalar"] = _scalar
    CALLS[_core + ".numeric", "_frombuffer"] = _array_of_buffer
for _builtins in ("builtins", "__builtin__"):
    for _container_kind in (list, tuple, set, frozenset):
        CALLS[_builtins, _container_kind.__name__] = _container(_container_kind)
    for _string_kind in (bytes, bytearray):
        CALLS[_builtins, _string_kind.__name__] = _byte_string(_string_kind)
