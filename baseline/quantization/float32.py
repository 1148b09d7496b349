"""Activation functions in float32 operations that all processors round alike.

They need no math library, and a policy in C computes them with the same operations in the same
order. All are within 2e-6 of torch's, as a share of the larger of 1 and the result. NaN counts as
the smallest number.
"""

from collections.abc import Callable
import math

import numpy as np
from torch import nn

from actorQ.policy import reference

_F = np.float32
LOG2_E = 1.44269504
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # Their sum is ln 2; the first has few bits.
EXP_TERMS = (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)  # Taylor's series, last term first.
EXP_LOW, EXP_HIGH = -87.0, 88.0  # Outside of these the result is that of the end.
ERF_TERMS = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
ERF_P = 0.3275911
LOG_TERMS = (2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0)
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
SQRT_HALF, SQRT_2_PI = math.sqrt(0.5), math.sqrt(2 / math.pi)
GELU_CUBE = 0.044715

Function = Callable[[np.ndarray], np.ndarray]


def clamp(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Returns x between two ends; NaN becomes the lower one."""
    return np.where(x > _F(low), np.where(x < _F(high), x, _F(high)), _F(low)).astype(_F)


def exp(x: np.ndarray) -> np.ndarray:
    """Returns e^x = 2^n e^r, with |r| <= ln(2) / 2."""
    y = clamp(x, EXP_LOW, EXP_HIGH)
    n = np.rint(y * _F(LOG2_E))
    r = (y - n * _F(LN2_HIGH)) - n * _F(LN2_LOW)
    e = np.full_like(r, _F(EXP_TERMS[0]))
    for term in EXP_TERMS[1:]:
        e = e * r + _F(term)
    return e * _power_of_two(n)


def _power_of_two(n: np.ndarray) -> np.ndarray:
    return ((n.astype(np.int32) + 127) << 23).view(_F)


def log_above_1(x: np.ndarray) -> np.ndarray:
    """Returns ln x of finite numbers >= 1: n ln 2 + ln m, with m from 0.75 to 1.5."""
    bits = np.ascontiguousarray(x, _F).view(np.int32)
    n = ((bits - 0x3F400000) >> 23).astype(_F)
    m = (bits - (((bits - 0x3F400000) >> 23) << 23)).view(_F)
    s = (m - _F(1)) / (m + _F(1))
    square = s * s
    total = np.full_like(s, _F(LOG_TERMS[0]))
    for term in LOG_TERMS[1:]:
        total = total * square + _F(term)
    return n * _F(LN2_HIGH) + (n * _F(LN2_LOW) + total * s)


def erf(x: np.ndarray) -> np.ndarray:
    """Returns the error function within 5e-7 (Abramowitz and Stegun, 7.1.26)."""
    size = clamp(np.abs(x), 0.0, 6.0)
    t = _F(1) / (_F(1) + _F(ERF_P) * size)
    total = np.full_like(t, _F(ERF_TERMS[0]))
    for term in ERF_TERMS[1:]:
        total = total * t + _F(term)
    return np.copysign(_F(1) - (total * t) * exp(-(size * size)), x)


def tanh(x: np.ndarray) -> np.ndarray:
    """Returns tanh, as ActorQ's actors compute it."""
    return reference.tanh(np.ascontiguousarray(x, _F))


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Returns 1 / (1 + e^-x)."""
    return _F(1) / (_F(1) + exp(-x))


def _softplus(x: np.ndarray, beta: float, threshold: float) -> np.ndarray:
    steep = x * _F(beta)
    return np.where(steep > _F(threshold), x, log_above_1(_F(1) + exp(steep)) / _F(beta))


def _mish(x: np.ndarray) -> np.ndarray:
    u = exp(clamp(x, EXP_LOW, 20.0))
    product = u * (u + _F(2))
    return np.where(x > _F(EXP_LOW), x * (product / (product + _F(2))), _F(0))


def _silu(x: np.ndarray) -> np.ndarray:
    # Below, e^x is not small enough for every x.
    return np.where(x > _F(EXP_LOW), x * sigmoid(x), _F(0))


def _gelu(x: np.ndarray, approximate: str) -> np.ndarray:
    if approximate == "tanh":
        share = tanh((x + ((x * x) * x) * _F(GELU_CUBE)) * _F(SQRT_2_PI))
    else:
        share = erf(x * _F(SQRT_HALF))
    return (x * _F(0.5)) * (share + _F(1))


def of_module(module: nn.Module) -> Function | None:
    """Returns the function of one of `acting_layers.ACTIVATIONS`; None: it has none."""
    if isinstance(module, nn.LeakyReLU):
        slope = _F(module.negative_slope)
        return lambda x: np.where(x > 0, x, x * slope)
    if isinstance(module, nn.ELU):
        alpha = _F(module.alpha)
        return lambda x: np.where(x > 0, x, alpha * (exp(x) - _F(1)))
    if isinstance(module, nn.Softplus):
        return lambda x: _softplus(x, float(module.beta), float(module.threshold))
    if isinstance(module, nn.GELU):
        return lambda x: _gelu(x, module.approximate)
    if isinstance(module, nn.Hardtanh):
        return lambda x: clamp(x, module.min_val, module.max_val)
    plain: dict[type[nn.Module], Function] = {
        nn.ReLU: lambda x: np.where(x > 0, x, _F(0)), nn.Tanh: tanh, nn.Sigmoid: sigmoid,
        nn.SELU: lambda x: _F(SELU_SCALE) * np.where(x > 0, x, _F(SELU_ALPHA) * (exp(x) - _F(1))),
        nn.SiLU: _silu, nn.Mish: _mish,
    }
    return next((make for kind, make in plain.items() if isinstance(module, kind)), None)
