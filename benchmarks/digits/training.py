"""Quantization-aware training of the digits network. The only module of the package that imports
PyTorch.

Three phases: float with batch statistics; calibration of the activation ranges; fake quantization
with frozen BatchNorm statistics, its scale and shift folded into the convolution before the weights
are quantized, as every int8 compiler will do.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from .layers import INPUT, LAYERS, QUANTIZED, Layer
from .quantizers import (
    ACTIVATION_LEVELS,
    WEIGHT_LEVELS,
    Range,
    activation_range,
    weight_range,
)

BATCH_NORM_EPSILON: Final = 1e-5

Parameters = dict[str, torch.Tensor]
Trained = tuple[dict[str, NDArray[np.float32]], dict[str, Range]]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the outcome besides the data."""

    seed: int
    float_epochs: int = 60
    quantized_epochs: int = 20
    batch_size: int = 48
    float_rate: float = 4e-3
    quantized_rate: float = 4e-4
    weight_decay: float = 1e-3
    label_smoothing: float = 0.05


def train(images: NDArray[np.float32], labels: NDArray[np.int64], recipe: Recipe) -> Trained:
    """Train on images f32 `[M, 1, 8, 8]` and labels int64 `[M]`; returns the parameters by name and
    the activation ranges by value name.

    Parameters are `<layer>.weight`, `<layer>.bias` (layers without BatchNorm) and
    `<layer>.{gamma,beta,mean,variance}`.
    The same recipe, data, machine and PyTorch give the same bytes: one thread, deterministic
    kernels.
    """
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(recipe.seed)
    parameters = _initial_parameters(generator)
    inputs, targets = torch.from_numpy(images), torch.from_numpy(labels)

    _fit(parameters, None, inputs, targets, recipe, generator)
    ranges = _calibrate(parameters, inputs)
    _fit(parameters, ranges, inputs, targets, recipe, generator)
    return {name: tensor.detach().numpy().copy() for name, tensor in parameters.items()}, ranges


def _initial_parameters(generator: torch.Generator) -> Parameters:
    """He initialisation (normal, fan in) of the weights; BatchNorm starts as the identity."""
    parameters: Parameters = {}
    for layer in LAYERS:
        if not layer.has_weights:
            continue
        shape = layer.weight_shape
        fan_in = int(np.prod(shape[1:]))
        parameters[f"{layer.name}.weight"] = (
            torch.randn(shape, generator=generator) * (2.0 / fan_in) ** 0.5
        )
        for name, value in (
            (("gamma", 1.0), ("beta", 0.0), ("mean", 0.0), ("variance", 1.0))
            if layer.batch_norm
            else (("bias", 0.0),)
        ):
            parameters[f"{layer.name}.{name}"] = torch.full((layer.out_channels,), value)
    return parameters


def _fit(
    parameters: Parameters,
    ranges: dict[str, Range] | None,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    recipe: Recipe,
    generator: torch.Generator,
) -> None:
    """One training phase in place: float with batch statistics if `ranges` is None, else quantized.
    Adam, cosine learning rate.
    """
    epochs, rate = (
        (recipe.float_epochs, recipe.float_rate)
        if ranges is None
        else (recipe.quantized_epochs, recipe.quantized_rate)
    )
    trained = [
        tensor.requires_grad_()
        for name, tensor in parameters.items()
        if not name.endswith((".mean", ".variance"))
    ]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        order = torch.randperm(len(inputs), generator=generator)
        for start in range(0, len(order), recipe.batch_size):
            batch = order[start : start + recipe.batch_size]
            logits = _forward(parameters, inputs[batch], ranges, training=True)[LAYERS[-1].name]
            loss = functional.cross_entropy(
                logits, targets[batch], label_smoothing=recipe.label_smoothing
            )
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        schedule.step()


def _calibrate(parameters: Parameters, inputs: torch.Tensor) -> dict[str, Range]:
    """Range of every quantized value: its minimum and maximum over the whole training set in float,
    with running statistics.
    """
    with torch.no_grad():
        values = _forward(parameters, inputs, None, training=False)
    return {
        name: activation_range(float(values[name].min()), float(values[name].max()), signed)
        for name, signed in QUANTIZED.items()
    }


def _forward(
    parameters: Parameters, images: torch.Tensor, ranges: dict[str, Range] | None, training: bool
) -> dict[str, torch.Tensor]:
    """All values by name. A value in `ranges` is quantized once, and every layer that reads it
    reads the quantized one.
    """
    values: dict[str, torch.Tensor] = {}

    def store(name: str, value: torch.Tensor) -> None:
        values[name] = (
            value
            if ranges is None or name not in ranges
            else _fake_quantize_activation(value, ranges[name])
        )

    store(INPUT, images)
    for layer in LAYERS:
        store(
            layer.name,
            _layer(
                layer,
                [values[name] for name in layer.inputs],
                parameters,
                ranges is not None,
                training,
            ),
        )
    return values


def _layer(
    layer: Layer,
    inputs: list[torch.Tensor],
    parameters: Parameters,
    quantized: bool,
    training: bool,
) -> torch.Tensor:
    match layer.kind:
        case "conv":
            return _convolution(layer, inputs[0], parameters, quantized, training)
        case "gemm":
            weight, bias = parameters[f"{layer.name}.weight"], parameters[f"{layer.name}.bias"]
            return functional.linear(
                inputs[0], _fake_quantize_weight(weight) if quantized else weight, bias
            )
        case "relu":
            return functional.relu(inputs[0])
        case "add":
            return inputs[0] + inputs[1]
        case "average_pool":
            return functional.avg_pool2d(inputs[0], 2)
        case "global_average_pool":
            return inputs[0].mean(dim=(2, 3), keepdim=True)
        case "flatten":
            return inputs[0].flatten(1)


def _convolution(
    layer: Layer, x: torch.Tensor, parameters: Parameters, quantized: bool, training: bool
) -> torch.Tensor:
    weight = parameters[f"{layer.name}.weight"]
    padding = layer.kernel // 2
    if not layer.batch_norm:
        weight = _fake_quantize_weight(weight) if quantized else weight
        return functional.conv2d(
            x, weight, parameters[f"{layer.name}.bias"], padding=padding, groups=layer.groups
        )
    gamma, beta, mean, variance = (
        parameters[f"{layer.name}.{name}"] for name in ("gamma", "beta", "mean", "variance")
    )
    if quantized:
        factor = gamma / torch.sqrt(variance + BATCH_NORM_EPSILON)
        folded = _fake_quantize_weight(weight * factor.reshape(-1, 1, 1, 1))
        return functional.conv2d(
            x, folded, beta - mean * factor, padding=padding, groups=layer.groups
        )
    y = functional.conv2d(x, weight, padding=padding, groups=layer.groups)
    return functional.batch_norm(
        y, mean, variance, gamma, beta, training=training, eps=BATCH_NORM_EPSILON
    )


def _fake_quantize_activation(x: torch.Tensor, limits: Range) -> torch.Tensor:
    low, high = (torch.from_numpy(limit) for limit in (limits.low, limits.high))
    return _fake_quantize(x, low, high, ACTIVATION_LEVELS)


def _fake_quantize_weight(weight: torch.Tensor) -> torch.Tensor:
    limits = weight_range(weight.detach().numpy())
    return _fake_quantize(
        weight, torch.from_numpy(limits.low), torch.from_numpy(limits.high), WEIGHT_LEVELS
    )


def _fake_quantize(
    x: torch.Tensor, low: torch.Tensor, high: torch.Tensor, levels: int
) -> torch.Tensor:
    """FakeQuantize-1 of the OpenVINO specification with output range = input range; gradient
    straight through inside the range.
    """
    steps = levels - 1
    y = torch.round((x - low) / (high - low) * steps) / steps * (high - low) + low
    y = torch.where(x <= low, low, torch.where(x > high, high, y))
    passed = torch.clamp(x, low, high)
    return y.detach() + (passed - passed.detach())
