"""Reads the nodes of a graph that torch.fx has traced as the layers of an acting path."""

from collections.abc import Mapping
import math
from typing import Any

from torch import fx
from torch import nn

from actorQ.core import errors
from baseline.quantization import acting_layers

OBSERVATION = "observation"  # Names the network's input.
_ROOT = "policy."
_UNCHANGED = (nn.Identity, nn.Dropout, nn.Dropout2d)  # They do nothing when the policy acts.
_ALIASES = ("float", "to", "contiguous", "clone", "detach", "dropout")
_ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "relu": nn.ReLU, "relu6": nn.ReLU6, "leaky_relu": nn.LeakyReLU, "elu": nn.ELU,
    "selu": nn.SELU, "silu": nn.SiLU, "mish": nn.Mish, "gelu": nn.GELU, "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid, "softplus": nn.Softplus, "hardtanh": nn.Hardtanh,
}
_SUMS, _DIFFERENCES = ("add", "iadd"), ("sub", "subtract", "isub")
_PRODUCTS, _QUOTIENTS = ("mul", "multiply", "imul"), ("div", "divide", "truediv", "itruediv")
_ARITHMETIC = (*_SUMS, *_DIFFERENCES, *_PRODUCTS, *_QUOTIENTS)

Shape = tuple[int, ...]


class Name(str):
    """Name of a layer whose output a node stands for; other texts are arguments."""


class Path:
    """The layers so far, and the shape of every value."""

    def __init__(self, shape: Shape):
        self._layers: dict[str, tuple[nn.Module, tuple[str, ...]]] = {}
        self.shapes: dict[str, Shape] = {OBSERVATION: shape}

    def needed_for(
        self, output: str
    ) -> tuple[tuple[tuple[str, nn.Module], ...], dict[str, tuple[str, ...]]]:
        """Returns the layers that an output needs, and inputs other than the layer before."""
        needed = {output}
        for name, (_, inputs) in reversed(self._layers.items()):
            if name in needed:
                needed.update(inputs)
        layers: list[tuple[str, nn.Module]] = []
        sources: dict[str, tuple[str, ...]] = {}
        before = OBSERVATION
        for name, (module, inputs) in self._layers.items():
            if name in needed:
                layers.append((name, module))
                if inputs != (before,):
                    sources[name] = inputs
                before = name
        return tuple(layers), sources

    def add(self, name: str, module: nn.Module, *inputs: str) -> Name:
        """Adds a layer; returns its name, with a number behind it where the name is taken."""
        if name in self.shapes:
            if isinstance(module, acting_layers.WITH_WEIGHTS):
                raise errors.UserError(
                    f"Layer {name} computes twice in one pass, for which there is no quantized "
                    "form here."
                )
            name = next(
                numbered for number in range(2, len(self.shapes) + 3)
                if (numbered := f"{name}#{number}") not in self.shapes
            )
        shape = acting_layers.output_shape(name, module, [self.shapes[each] for each in inputs])
        self._layers[name] = module, inputs
        self.shapes[name] = shape
        return Name(name)


def kind_of(module: nn.Module) -> type[nn.Module] | None:
    """Returns which of the known kinds a module is of; None: another, maybe with other sums."""
    for kind in acting_layers.KINDS:
        if isinstance(module, kind):
            own = type(module).__module__.startswith("baseline.quantization.")
            return kind if own or type(module).forward is kind.forward else None
    return None


class Reader:
    """Reads the nodes of a traced graph as layers."""

    def __init__(self, path: Path, actor: nn.Module, observation: Name | dict[str, Name]):
        self._path = path
        self._actor = actor
        self._observation = observation
        # Values by their nodes: names of layers, or what `x.shape` and `x.size(0)` stand for.
        self._values: dict[fx.Node, Any] = {}

    def read(self, graph: fx.Graph) -> Name:
        """Adds the layers of the graph to the path; returns the name of the last output.

        Raises:
          errors.UserError: A node has no form here.
        """
        output = None
        for node in graph.nodes:
            if node.op == "placeholder":
                self._values[node] = self._observation
            elif node.op == "call_module":
                self._values[node] = self._module(node)
            elif node.op in ("call_function", "call_method"):
                self._values[node] = self._function(node)
            elif node.op == "output":
                output = self._value(node.args[0])
            else:  # A parameter that a function is called with.
                self._values[node] = None
        if not isinstance(output, Name) or len(self._path.shapes[output]) != 1:
            raise errors.UserError(
                "The policy's layers do not give one vector of outputs: there is no quantized form "
                "of such a policy here."
            )
        return output

    def _module(self, node: fx.Node) -> Name:
        name = str(node.target)
        module = self._actor.get_submodule(name)
        name = name.removeprefix(_ROOT)
        (value,) = (self._value(argument) for argument in node.args)
        if not isinstance(value, Name):
            raise errors.UserError(f"Layer {name} does not take the output of a known layer.")
        if isinstance(module, _UNCHANGED):
            return value
        if kind_of(module) is None:
            known = ", ".join(kind.__name__ for kind in acting_layers.OF_TORCH)
            raise errors.UserError(
                f"Layer {name} is a {type(module).__name__}, which has no quantized form here "
                f"(known: {known})."
            )
        if isinstance(module, acting_layers.WITH_WEIGHTS):
            if not isinstance(module.weight, nn.Parameter):
                raise errors.UserError(
                    f"Layer {name} computes its weights from others (a parametrization), for "
                    "which there is no quantized form here."
                )
        return self._path.add(name, module, value)

    def _function(self, node: fx.Node) -> Any:
        """Returns the value of a function's, operator's or method's call."""
        called = node.target if isinstance(node.target, str) else node.target.__name__
        called = called.removesuffix("_")  # `relu_` works in place.
        arguments, kwargs = list(node.args), dict(node.kwargs)
        if not arguments and "input" in kwargs:
            arguments.append(kwargs.pop("input"))
        for name in ("inplace", "training", "p"):
            kwargs.pop(name, None)
        values = [self._value(argument) for argument in arguments]
        found = self._call(called, values, kwargs)
        if found is None:
            raise errors.UserError(
                f"The policy calls {called}, which has no quantized form here as it is called "
                f"(in {self._place(node)}). Layers that have one: "
                f"{', '.join(kind.__name__ for kind in acting_layers.OF_TORCH)}."
            )
        return found

    def _call(self, called: str, values: list[Any], kwargs: dict[str, Any]) -> Any:
        """Returns a value; None where the call is not known."""
        first, rest = values[0] if values else None, values[1:]
        if isinstance(first, dict):
            return first.get(rest[0]) if called == "getitem" and rest else None
        if called == "getitem" and isinstance(first, Name):
            return self._columns(first, rest[0])
        if isinstance(first, _Sizes):
            return _Batch() if called == "getitem" and rest == [0] else None
        if called in ("cat", "concat", "concatenate", "hstack"):
            return self._concatenated(first, rest, kwargs)
        if called in _ARITHMETIC and len(values) == 2 and not kwargs:
            return self._arithmetic(called, *values)
        if not isinstance(first, Name):
            return None
        if called in _ALIASES:
            return first
        if called == "neg":
            return self._add(acting_layers.Scaled(-1.0), first)
        if called in ("size", "getattr"):
            if rest in (["shape"], []):
                return _Sizes()
            return _Batch() if called == "size" and rest == [0] else None
        if called in ("flatten", "view", "reshape"):
            return self._flattened(called, first, rest, kwargs)
        if called in ("clamp", "clip"):
            low, high = (*rest, kwargs.get("min"), kwargs.get("max"))[:2]
            if isinstance(low, int | float) and isinstance(high, int | float):
                return self._add(nn.Hardtanh(float(low), float(high)), first)
            return None
        kind = _ACTIVATIONS.get(called)
        settings = [value for value in rest if not isinstance(value, bool)]  # Without `inplace`.
        plain = all(
            isinstance(value, int | float | str) and not isinstance(value, Name)
            for value in (*settings, *kwargs.values())
        )
        if kind is None or not plain:
            return None
        return self._add(kind(*settings, **kwargs), first)

    def _columns(self, value: Name, index: Any) -> Name | None:
        """Returns the columns of a vector that `x[:, start:end]` asks for."""
        shape = self._path.shapes[value]
        slices = isinstance(index, list) and all(isinstance(each, slice) for each in index)
        if not slices or len(index) != 2 or len(shape) != 1 or index[0] != slice(None):
            return None
        columns = range(*index[1].indices(shape[0]))
        if columns.step != 1 or not columns:
            return None
        return self._add(acting_layers.Part(columns.start, (len(columns),)), value)

    def _concatenated(self, parts: Any, rest: list[Any], kwargs: dict[str, Any]) -> Name | None:
        if not isinstance(parts, list) or not all(isinstance(part, Name) for part in parts):
            return None
        axis = rest[0] if rest else kwargs.get("dim", kwargs.get("axis", 0))
        flat = all(len(self._path.shapes[part]) == 1 for part in parts)
        if axis != 1 and not (axis == -1 and flat):
            return None
        return parts[0] if len(parts) == 1 else self._add(acting_layers.Concatenate(), *parts)

    def _arithmetic(self, called: str, left: Any, right: Any) -> Name | None:
        shapes = self._path.shapes
        if isinstance(left, Name) and isinstance(right, Name):
            if called in _QUOTIENTS or shapes[left] != shapes[right]:
                return None
            if called in _DIFFERENCES:
                right = self._add(acting_layers.Scaled(-1.0), right)
            join = acting_layers.Multiply() if called in _PRODUCTS else acting_layers.Add()
            return self._add(join, left, right)
        number, value = (right, left) if isinstance(left, Name) else (left, right)
        if not isinstance(number, int | float) or not isinstance(value, Name):
            return None
        if called in _SUMS:
            return self._add(acting_layers.Scaled(1.0, number), value)
        if called in _PRODUCTS:
            return self._add(acting_layers.Scaled(number), value)
        if called in _DIFFERENCES:
            factor, summand = (-1.0, number) if value is right else (1.0, -number)
            return self._add(acting_layers.Scaled(factor, summand), value)
        if value is right or number == 0:  # One over x is none of the known layers.
            return None
        return self._add(acting_layers.Scaled(1.0 / number), value)

    def _flattened(
        self, called: str, value: Name, rest: list[Any], kwargs: dict[str, Any]
    ) -> Name | None:
        size = math.prod(self._path.shapes[value])
        if called == "flatten":
            start = rest[0] if rest else kwargs.get("start_dim", 0)
            end = rest[1] if len(rest) > 1 else kwargs.get("end_dim", -1)
            whole = (start, end) == (1, -1)
        else:
            wanted = list(rest[0]) if len(rest) == 1 and isinstance(rest[0], list) else rest
            whole = len(wanted) == 2 and wanted[1] in (-1, size) and (
                isinstance(wanted[0], _Batch) or wanted[0] == -1
            ) and wanted != [-1, -1]
        return self._add(nn.Flatten(), value) if whole else None

    def _add(self, module: nn.Module, *inputs: str) -> Name:
        return self._path.add(type(module).__name__.lower(), module, *inputs)

    def _value(self, argument: Any) -> Any:
        """Returns what an argument of a node stands for; lists for lists and tuples."""
        if isinstance(argument, fx.Node):
            return self._values[argument]
        if isinstance(argument, list | tuple):
            return [self._value(each) for each in argument]
        return argument

    def _place(self, node: fx.Node) -> str:
        """Returns the class of the module that made a node."""
        stack = node.meta.get("nn_module_stack")
        if isinstance(stack, Mapping) and stack:
            kind = list(stack.values())[-1]
            kind = kind[1] if isinstance(kind, tuple) else kind
            return kind if isinstance(kind, str) else kind.__name__
        return type(self._actor.policy).__name__


class _Sizes:
    """Stands for `x.shape`."""


class _Batch:
    """Stands for `x.shape[0]`."""
