"""Small policies, and an independent simulation of their quantized forms in float64."""

import copy

import numpy as np
import torch
from torch import nn

from baseline.quantization import acting_layers
from baseline.quantization import acting_path


def dense(activation=nn.Tanh, sizes=(6, 32, 24, 4), head="argmax", seed=0):
    """Returns a policy of linear layers that are named layer_0, layer_1, ..."""
    torch.manual_seed(seed)
    layers = [("flatten", nn.Flatten())]
    for index, (inputs, outputs) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        layers.append((f"layer_{index}", nn.Linear(inputs, outputs)))
        layers.append((f"activation_{index}", activation()))
    layers.pop()
    if head == "scale":
        layers.append(("squash", nn.Tanh()))
    low = high = None
    if head != "argmax":
        low = np.linspace(-2, -1, sizes[-1], dtype=np.float32)
        high = np.linspace(0.5, 3, sizes[-1], dtype=np.float32)
    return acting_path.PolicyNetwork(tuple(layers), head, low, high)


def images(size=20, padding=0, seed=0, tail=nn.ReLU):
    """Returns a policy for images uint8 [3, size, size]."""
    torch.manual_seed(seed)
    convolutions = [
        ("conv_0", nn.Conv2d(3, 8, 4, 2, padding=padding)), ("relu_0", nn.ReLU()),
        ("conv_1", nn.Conv2d(8, 6, 3, 1, padding=padding)), ("relu_1", tail()),
        ("flatten", nn.Flatten()),
    ]
    with torch.no_grad():
        probe = torch.zeros(1, 3, size, size)
        for _, module in convolutions:
            probe = module(probe)
    dense_layers = [
        ("layer_0", nn.Linear(probe.shape[1], 16)), ("relu_2", nn.ReLU()),
        ("layer_1", nn.Linear(16, 5)),
    ]
    return acting_path.PolicyNetwork((*convolutions, *dense_layers), "argmax", image=True)


def observations(network, count=200, seed=1, size=20):
    rng = np.random.default_rng(seed)
    if network.image:
        return rng.integers(0, 256, (count, 3, size, size)).astype(np.uint8)
    width = network.with_weights()[0][1].in_features
    return rng.standard_normal((count, width)).astype(np.float32)


def calibrate(network, inputs):
    """Returns the ranges of the layers' inputs for these observations."""
    seen = {}

    def watch(name, x):
        seen[name] = (float(x.min()), float(x.max()))
        return x

    acting_path.forward(network, inputs, watch)
    return seen


def affine(low, high, bits):
    """Returns step (float32) and zero point (int) by the paper's formula."""
    low, high = min(low, 0.0), max(high, 0.0)
    step = np.float32((high - low) / 2**bits)
    if step == 0:
        step = np.float32(1)
    return step, int(min(np.rint(-low / np.float64(step)), 2**bits - 1))


def fake(x, low, high, bits):
    """Returns numbers quantized and dequantized."""
    step, zero = affine(low, high, bits)
    levels = np.clip(np.rint(x / step) + zero, 0, 2**bits - 1)
    return (levels - zero) * np.float64(step)


def fake_weights(weights, bits, per_channel):
    """Returns weights quantized and dequantized, output channel first."""
    weights = np.asarray(weights, np.float32)
    if per_channel:
        return np.stack([fake(row, row.min(), row.max(), bits) for row in weights])
    return fake(weights, weights.min(), weights.max(), bits)


def simulate(network, inputs, bits_of, ranges=None, granularity="paper"):
    """Returns the last output [B, A] for weights of `bits_of[layer]` and inputs of 8 bits."""
    ranges = ranges or {}
    x = np.asarray(inputs, np.float64)
    if network.image:
        x = x / 255.0
    values = {acting_path.OBSERVATION: x}
    for name, module, sources in network.steps():
        x = values[sources[0]]
        if not isinstance(module, acting_path.WITH_WEIGHTS):
            inputs = [torch.from_numpy(values[source]) for source in sources]
            with torch.no_grad():
                x = acting_layers.call(copy.deepcopy(module).double(), inputs).double().numpy()
            values[name] = x
            continue
        if name in ranges:
            x = fake(x, *ranges[name], 8)
        convolution = isinstance(module, nn.Conv2d)
        weights = module.weight.detach().numpy()
        if name in bits_of:
            by_channel = convolution or granularity == "channel"
            weights = fake_weights(weights, bits_of[name], by_channel)
        bias = module.bias.detach().numpy().astype(np.float64)
        if convolution:
            x = nn.functional.conv2d(
                torch.from_numpy(x), torch.from_numpy(weights.astype(np.float64)),
                torch.from_numpy(bias), module.stride, module.padding,
            ).numpy()
        else:
            x = x @ weights.T.astype(np.float64) + bias
        values[name] = x
    if acting_path.OUTPUT in ranges:
        x = fake(x, *ranges[acting_path.OUTPUT], 8)
    return x


def simulate_micro(network, inputs, ranges):
    """Returns the outputs [B, A] of the form in int8 that TensorFlow Lite Micro plays, in float64.

    Discrete actions have outputs less their mean, and `ranges` has those under OUTPUT. Continuous
    actions are -1 to 1 for their bounds.
    """
    last = network.with_weights()[-1][0]
    x = np.asarray(inputs, np.float64) / (255.0 if network.image else 1.0)
    step = affine(*ranges[network.with_weights()[0][0]], 8)[0]
    x = fake(x, *ranges[network.with_weights()[0][0]], 8)
    for index, (name, module) in enumerate(network.layers):
        following = [each for each in network.layers[index + 1 :]]
        if isinstance(module, acting_path.WITH_WEIGHTS):
            x = _symmetric_layer(network, module, x, name == last, step)
            step = _step(network, following, ranges)
            if not following:
                x = _after(network, x, following, ranges)
            elif type(following[0][1]) in _INVERSES:
                low, high = _ends(network, following[1:], ranges)
                x = _INVERSES[type(following[0][1])](x, low, high)
        elif isinstance(module, nn.Tanh):
            x = np.clip(np.rint(128 * np.tanh(x)), -128, 127) / 128
        elif isinstance(module, nn.Sigmoid):
            x = np.clip(np.rint(256 / (1 + np.exp(-x))), 0, 255) / 256
        else:
            x = module(torch.from_numpy(x)).numpy()
            if not isinstance(module, nn.Flatten):
                x = _after(network, x, following, ranges)
    return x


def _ends(network, following, ranges):
    """Returns the range of the tensor before these layers; None: -1 to 1 in 254 steps."""
    names = [name for name, module in following if isinstance(module, acting_path.WITH_WEIGHTS)]
    if not names and network.head in ("clip", "scale"):
        return -1.0, 1.0
    step, zero = affine(*ranges[names[0] if names else acting_path.OUTPUT][:2], 8)
    return -zero * float(step), (255 - zero) * float(step)


def _step(network, following, ranges):
    """Returns the step of the next layer's input, behind these layers; None: there is none."""
    names = [name for name, module in following if isinstance(module, acting_path.WITH_WEIGHTS)]
    fixed = {nn.Tanh: 1 / 128, nn.Sigmoid: 1 / 256}.get(type(following[0][1])) if names else None
    return (fixed or affine(*ranges[names[0]], 8)[0]) if names else None


def _after(network, x, following, ranges):
    names = [name for name, module in following if isinstance(module, acting_path.WITH_WEIGHTS)]
    if not names and network.head in ("clip", "scale"):
        return np.clip(np.rint(127 * x), -128, 127) / 127
    return fake(x, *ranges[names[0] if names else acting_path.OUTPUT], 8)


def _symmetric_layer(network, module, x, last, step):
    """Computes a layer with int8 weights from -127 to 127, one scale for each output.

    Biases are multiples of the sums' steps; `step` is that of the input.
    """
    weights = module.weight.detach().numpy().astype(np.float64)
    bias = module.bias.detach().numpy().astype(np.float64)
    if last and network.head == "argmax":
        weights, bias = weights - weights.mean(axis=0), bias - bias.mean()
    elif last and network.head == "clip":
        half = (network.high - network.low) / 2
        weights, bias = weights / half[:, None], (bias - network.low) / half - 1
    rows = weights.reshape(len(weights), -1)
    scale = np.abs(rows).max(axis=1) / 127
    scale = np.maximum(scale, np.abs(bias) / (step * 2.0**29)).astype(np.float32).astype(float)
    scale[scale == 0] = 1.0
    weights = (np.rint(rows / scale[:, None]) * scale[:, None]).reshape(weights.shape)
    sums = (float(step) * scale).astype(np.float32).astype(float)
    bias = np.rint(bias / sums) * sums
    if isinstance(module, nn.Conv2d):
        return nn.functional.conv2d(
            torch.from_numpy(x), torch.from_numpy(weights), torch.from_numpy(bias),
            module.stride, module.padding,
        ).numpy()
    return x @ weights.T + bias


def _before_tanh(x, low, high):
    step = np.arctanh(min(max(-low, high), np.tanh(2.7))) / 127
    return np.clip(np.rint(x / step), -128, 127) * step


def _before_sigmoid(x, low, high):
    low, high = np.clip([low, high], 1 / (1 + np.exp(5.5)), 1 / (1 + np.exp(-5.5)))
    return fake(x, np.log(low / (1 - low)), np.log(high / (1 - high)), 8)


def _before_elu(x, low, high):
    return fake(x, np.log1p(max(low, np.expm1(-4.0))), high, 8)


def _before_leaky_relu(x, low, high):
    return fake(x, low / 0.01, high, 8)


_INVERSES = {
    nn.Tanh: _before_tanh, nn.Sigmoid: _before_sigmoid, nn.ELU: _before_elu,
    nn.LeakyReLU: _before_leaky_relu,
}


def nature_cnn(seed=0):
    """Returns the Atari network of SB3's DQN, with weights that tell images apart."""
    torch.manual_seed(seed)
    layers = (
        ("cnn.0", nn.Conv2d(4, 32, 8, 4)), ("cnn.1", nn.ReLU()),
        ("cnn.2", nn.Conv2d(32, 64, 4, 2)), ("cnn.3", nn.ReLU()),
        ("cnn.4", nn.Conv2d(64, 64, 3, 1)), ("cnn.5", nn.ReLU()),
        ("cnn.6", nn.Flatten()),
        ("linear.0", nn.Linear(3136, 512)), ("linear.1", nn.ReLU()), ("q_net", nn.Linear(512, 6)),
    )
    network = acting_path.PolicyNetwork(layers, "argmax", image=True)
    for _, module in network.with_weights():
        nn.init.orthogonal_(module.weight, 2**0.5)
        nn.init.zeros_(module.bias)
    return network


def scenes(count=100, seed=2):
    """Returns images uint8 [count, 4, 84, 84] of bright rectangles that move on dark ground."""
    rng = np.random.default_rng(seed)
    made = np.zeros((count, 4, 84, 84), np.uint8)
    for image in made:
        for _ in range(6):
            x, y, dx, dy = rng.integers(0, 60, 4)
            colour, width, height = rng.integers(60, 256), *rng.integers(3, 40, 2)
            for frame in range(4):
                left, top = x + frame * dx // 10, y + frame * dy // 10
                image[frame, top : top + height, left : left + width] = colour
    return made
