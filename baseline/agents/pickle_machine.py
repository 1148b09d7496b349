"""Runs the instructions of a pickle, on a machine that calls nothing but `pickle_values.CALLS`.

`safe_pickle` runs it and explains its purpose. `pickletools` decodes the instructions and documents
their meaning.
"""

from collections.abc import Callable
import io
import pickletools
from typing import Any

import numpy as np

from baseline.agents import pickle_values

MAX_OPERATIONS = 20_000_000
NAME_LENGTH = 1000
# Bytes that objects take from the allowance, though the file spends only a byte or two on them.
CONTAINER_BYTES = 64
LARGE_BYTES = 256  # A set, or the stand-in for an object.

Placeholder = pickle_values.Placeholder
Reference = pickle_values.Reference

LITERALS = frozenset(
    "INT LONG LONG1 LONG4 BININT BININT1 BININT2 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING "
    "UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 "
    "BYTEARRAY8".split()
)
CONSTANTS: dict[str, tuple[Callable[[], Any], int]] = {  # Maker, and bytes of the allowance.
    "NONE": (lambda: None, 0),
    "NEWTRUE": (lambda: True, 0),
    "NEWFALSE": (lambda: False, 0),
    "EMPTY_TUPLE": (tuple, 0),
    "EMPTY_LIST": (list, CONTAINER_BYTES),
    "EMPTY_DICT": (dict, CONTAINER_BYTES),
    "EMPTY_SET": (set, LARGE_BYTES),
}
# Protocols below 2 call these with (class, base, state) to make an object without its constructor.
_RECONSTRUCTORS = (("copyreg", "_reconstructor"), ("copy_reg", "_reconstructor"))


class Machine:
    """Runs the instructions of one pickle.

    Attributes:
      calls: Names of the functions that were not called, in order, as keys.
    """

    def __init__(self, file_bytes: int) -> None:
        self.calls: dict[str, None] = {}
        self._allowance = pickle_values.Allowance(file_bytes)
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # The stack below each mark.
        self._memo: dict[int, Any] = {}

    def run(self, content: bytes) -> Any:
        """Returns the object.

        Raises:
          DamagedError: The pickle is damaged or asks for too much.
          ValueError, LookupError, TypeError, ArithmeticError: Its instructions do not fit together.
        """
        operations = pickletools.genops(io.BytesIO(content))
        for count, (operation, argument, _) in enumerate(operations):
            if count > MAX_OPERATIONS:
                raise pickle_values.DamagedError("it has too many instructions")
            name = operation.name
            if name in LITERALS:
                self._stack.append(argument)
            elif name in CONSTANTS:
                make, num_bytes = CONSTANTS[name]
                self._allowance.take(num_bytes)
                self._stack.append(make())
            elif name == "STOP":
                return self._stack.pop()
            else:
                getattr(self, "_do_" + name.lower())(argument)
        raise pickle_values.DamagedError("it ends early")

    def _named(self, module: Any, name: Any) -> Reference:
        if type(module) is not str or type(name) is not str or len(module + name) > NAME_LENGTH:
            raise pickle_values.DamagedError("a name in it is none")
        self._allowance.take(LARGE_BYTES + len(module) + len(name))
        return Reference(module, name)

    def _call(self, function: Any, args: Any, kwargs: dict | None = None) -> Any:
        """Returns the value of a harmless call, or a placeholder for any other."""
        if type(args) is not tuple or not (kwargs is None or type(kwargs) is dict):
            raise pickle_values.DamagedError("the arguments of a call are none")
        if not isinstance(function, pickle_values.Inert):
            raise pickle_values.DamagedError("it calls something that is no function")
        if type(function) is not Reference:
            return self._placeholder(function, args, kwargs)
        key = (function.module, function.name)
        if key in _RECONSTRUCTORS and len(args) == 3 and type(args[0]) is Reference:
            function, *args = args
            return self._placeholder(function, tuple(args))
        if key in pickle_values.CALLS and not kwargs:
            self._allowance.take(CONTAINER_BYTES)
            made = pickle_values.CALLS[key](args, self._allowance)
            if made is not NotImplemented:
                return made
        self.calls[f"{function.module}.{function.name}"] = None
        return self._placeholder(function, args, kwargs)

    def _placeholder(self, function: Any, args: tuple, kwargs: dict | None = None) -> Placeholder:
        self._allowance.take(LARGE_BYTES)
        return Placeholder(function, args, kwargs)

    def _pop_mark(self) -> list[Any]:
        items = self._stack
        self._stack = self._below.pop()
        return items

    def _do_proto(self, argument: int) -> None:
        if argument > 5:
            raise pickle_values.DamagedError(f"its protocol, {argument}, is unknown")

    def _do_frame(self, argument: int) -> None:
        """Does nothing: frames help a reader to fetch ahead, and the whole file is in memory."""

    def _do_mark(self, argument: None) -> None:
        self._allowance.take(CONTAINER_BYTES)
        self._below.append(self._stack)
        self._stack = []

    def _do_pop(self, argument: None) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._pop_mark()

    def _do_pop_mark(self, argument: None) -> None:
        self._pop_mark()

    def _do_dup(self, argument: None) -> None:
        self._stack.append(self._stack[-1])

    def _do_memoize(self, argument: None) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _do_put(self, argument: int) -> None:
        self._memo[argument] = self._stack[-1]

    _do_binput = _do_long_binput = _do_put

    def _do_get(self, argument: int) -> None:
        self._stack.append(self._memo[argument])

    _do_binget = _do_long_binget = _do_get

    def _do_tuple(self, argument: None) -> None:
        items = tuple(self._pop_mark())
        self._stack.append(items)

    def _do_tuple1(self, argument: None, size: int = 1) -> None:
        if len(self._stack) < size:
            raise pickle_values.DamagedError("a tuple in it lacks items")
        self._allowance.take(CONTAINER_BYTES)
        self._stack[-size:] = [tuple(self._stack[-size:])]

    def _do_tuple2(self, argument: None) -> None:
        self._do_tuple1(argument, 2)

    def _do_tuple3(self, argument: None) -> None:
        self._do_tuple1(argument, 3)

    def _do_list(self, argument: None) -> None:
        items = self._pop_mark()
        self._stack.append(items)

    def _do_dict(self, argument: None) -> None:
        items = self._pop_mark()
        self._allowance.take(CONTAINER_BYTES)
        self._stack.append({})
        pickle_values.set_items(self._stack[-1], items)

    def _do_frozenset(self, argument: None) -> None:
        items = self._pop_mark()
        self._allowance.take(LARGE_BYTES)
        self._stack.append(frozenset(pickle_values.check_key(item) for item in items))

    def _add(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, pickle_values.Inert):
            target.items.extend(items)
        elif type(target) is list:
            target.extend(items)
        elif type(target) is set:
            target.update(pickle_values.check_key(item) for item in items)
        else:
            raise pickle_values.DamagedError("it adds to something that is no list")

    def _set_items(self, flat: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, pickle_values.Inert):
            target.items.extend(zip(flat[::2], flat[1::2], strict=True))
        elif isinstance(target, dict):
            pickle_values.set_items(target, flat)
        else:
            raise pickle_values.DamagedError("it adds to something that is no dictionary")

    def _do_append(self, argument: None) -> None:
        item = self._stack.pop()
        self._add([item])

    def _do_appends(self, argument: None) -> None:
        items = self._pop_mark()
        self._add(items)

    _do_additems = _do_appends

    def _do_setitem(self, argument: None) -> None:
        value = self._stack.pop()
        key = self._stack.pop()
        self._set_items([key, value])

    def _do_setitems(self, argument: None) -> None:
        items = self._pop_mark()
        self._set_items(items)

    def _do_global(self, argument: str) -> None:
        self._stack.append(self._named(*argument.split(" ", 1)))

    def _do_stack_global(self, argument: None) -> None:
        name = self._stack.pop()
        self._stack.append(self._named(self._stack.pop(), name))

    def _do_ext1(self, argument: int) -> None:
        """Names an extension code, which stood for a name that the writing program registered."""
        self._stack.append(self._named("copyreg", f"extension {argument}"))

    _do_ext2 = _do_ext4 = _do_ext1

    def _do_persid(self, argument: str) -> None:
        function = self._named("pickle", "persistent_load")
        self._stack.append(self._call(function, (argument,)))

    def _do_binpersid(self, argument: None) -> None:
        self._do_persid(self._stack.pop())

    def _do_reduce(self, argument: None) -> None:
        args = self._stack.pop()
        self._stack.append(self._call(self._stack.pop(), args))

    _do_newobj = _do_reduce

    def _do_newobj_ex(self, argument: None) -> None:
        kwargs = self._stack.pop()
        args = self._stack.pop()
        self._stack.append(self._call(self._stack.pop(), args, kwargs))

    def _do_inst(self, argument: str) -> None:
        args = tuple(self._pop_mark())
        self._stack.append(self._call(self._named(*argument.split(" ", 1)), args))

    def _do_obj(self, argument: None) -> None:
        function, *args = self._pop_mark()
        self._stack.append(self._call(function, tuple(args)))

    def _do_build(self, argument: None) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if isinstance(target, pickle_values.Inert):
            target.states.append(state)
        elif type(target) is np.ndarray:
            pickle_values.set_array_state(target, state, self._allowance)
        elif isinstance(target, np.dtype):
            pickle_values.set_dtype_state(target, state)
        else:
            raise pickle_values.DamagedError("it sets the state of something that has none")

    def _do_next_buffer(self, argument: None) -> None:
        raise pickle_values.DamagedError("its arrays are in another file")

    _do_readonly_buffer = _do_next_buffer
