"""Layers over NetworkWriter: convolution, calibrated BatchNormalization, classifier with spread
logits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fqfuse.measure.arrays import Array

from .writer import NetworkWriter, Tensor

Act = Callable[[NetworkWriter, Tensor, str], Tensor]
"""Adds an activation behind a tensor, in a scope."""


def rounded(values: Array) -> Array:
    """Return ``values`` as f32 with 8 significant bits.

    Statistics come out of float sums whose order depends on the CPU; rounding makes the built file
    the same everywhere, up to values that fall on a rounding border.
    """
    mantissa, exponent = np.frexp(np.asarray(values, np.float64))
    return np.ldexp(np.round(mantissa * 256) / 256, exponent).astype(np.float32)


def normal(writer: NetworkWriter, shape: tuple[int, ...], std: float) -> Array:
    """Draw normal f32 values of standard deviation ``std``; rows (axis 0) differ in size by a
    log-normal factor.

    The factor (sigma 0.3) gives output channels different ranges, as trained networks have: without
    it per-channel and per-tensor quantization of weights would look alike.
    """
    rows: Array = std * writer.rng.lognormal(0.0, 0.3, (shape[0],) + (1,) * (len(shape) - 1))
    values: Array = writer.rng.standard_normal(shape, np.float32) * rows
    return values.astype(np.float32)


def conv2d(
    writer: NetworkWriter,
    x: Tensor,
    scope: str,
    channels: int,
    kernel: int,
    stride: int = 1,
    group: int = 1,
    *,
    pad: int | None = None,
    bias: bool = False,
) -> Tensor:
    """Square convolution, He-initialized; ``pad`` is "same" padding for odd kernels where it is not
    given, ``bias`` small.

    He et al. 2015 (arXiv:1502.01852), eq. 10: std = sqrt(2 / fan_in). x: ``[n, c, h, w]``.
    """
    fan_in = x.value.shape[1] // group * kernel * kernel
    shape = (channels, x.value.shape[1] // group, kernel, kernel)
    weight = writer.parameter(
        _dotted(scope, "weight"), normal(writer, shape, (2.0 / fan_in) ** 0.5)
    )
    parameters = [weight]
    if bias:
        drawn = (0.1 * writer.rng.standard_normal(channels)).astype(np.float32)
        parameters.append(writer.parameter(_dotted(scope, "bias"), drawn))
    attributes = {
        "dilations": [1, 1],
        "group": group,
        "kernel_shape": [kernel] * 2,
        "pads": [kernel // 2 if pad is None else pad] * 4,
        "strides": [stride] * 2,
    }
    return writer.op("Conv", [x, *parameters], scope, **attributes)


def batch_norm(
    writer: NetworkWriter, x: Tensor, scope: str, gain: float = 1.0, shift: float = 0.5
) -> Tensor:
    """BatchNormalization whose running statistics are those of ``x`` over the samples.

    The scale is uniform in ``gain`` * [0.5, 1.5] and the bias normal with mean ``gain`` * ``shift``
    and std ``gain`` * 0.3, so
    that channels differ as after training. A positive mean keeps most of a following ReLU open: a
    random network of half-open ReLUs amplifies any disturbance from layer to layer until the
    rounding noise of 8 bits drowns the signal, which no trained network does.
    """
    channels = int(x.value.shape[1])
    parameters: dict[str, Array] = {
        "weight": (gain * writer.rng.uniform(0.5, 1.5, (channels,))).astype(np.float32),
        "bias": (gain * (shift + 0.3 * writer.rng.standard_normal((channels,)))).astype(np.float32),
        "running_mean": rounded(x.value.mean(axis=(0, 2, 3), dtype=np.float64)),
        "running_var": rounded(x.value.var(axis=(0, 2, 3), dtype=np.float64)),
    }
    tensors = [writer.parameter(_dotted(scope, name), value) for name, value in parameters.items()]
    return writer.op("BatchNormalization", [x, *tensors], scope, epsilon=1e-5, momentum=0.9)


def conv_bn_act(
    writer: NetworkWriter,
    x: Tensor,
    scope: str,
    channels: int,
    kernel: int,
    stride: int = 1,
    group: int = 1,
    *,
    act: Act,
    shift: float = 0.5,
) -> Tensor:
    """Convolution, BatchNormalization of that ``shift`` and ``act``, as torchvision's
    Conv2dNormActivation names them.
    """
    module = f"{scope}/{scope.rsplit('/', 1)[-1]}"
    y = conv2d(writer, x, f"{module}.0", channels, kernel, stride, group)
    return act(writer, batch_norm(writer, y, f"{module}.1", shift=shift), f"{module}.2")


def relu(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """Add Relu."""
    return writer.op("Relu", [x], scope)


def relu6(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """ReLU6, which exporters write as Clip with Constant bounds."""
    low = writer.constant(f"{scope}/Constant", np.array(0, np.float32))
    high = writer.constant(f"{scope}/Constant_1", np.array(6, np.float32))
    return writer.op("Clip", [x, low, high], scope)


def silu(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """x * sigmoid(x), also called swish, as exporters write it."""
    return writer.op("Mul", [x, writer.op("Sigmoid", [x], scope)], scope)


def squeeze_and_excite(
    writer: NetworkWriter,
    x: Tensor,
    scope: str,
    squeezed: int,
    act: Act,
) -> Tensor:
    """A factor in 0..1 for each channel of ``[n, c, h, w]``, from the means of all (Hu et al. 2017,
    arXiv:1709.01507): ``squeezed`` channels and ``act`` between two products.
    """
    y = writer.op("GlobalAveragePool", [x], f"{scope}/avgpool")
    y = conv2d(writer, y, f"{scope}/fc1", squeezed, 1, bias=True)
    y = act(writer, y, f"{scope}/activation")
    y = conv2d(writer, y, f"{scope}/fc2", int(x.value.shape[1]), 1, bias=True)
    return writer.op("Mul", [writer.op("Sigmoid", [y], scope), x], scope)


def max_pool(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """3x3 maximum with stride 2 and padding 1, the stem of ResNet and DenseNet."""
    return writer.op(
        "MaxPool", [x], scope, ceil_mode=0, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]
    )


def global_pool(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """Global average and Flatten: ``[n, c, h, w]`` to ``[n, c]``."""
    return writer.op("Flatten", [writer.op("GlobalAveragePool", [x], scope)], scope, axis=1)


def linear(
    writer: NetworkWriter,
    x: Tensor,
    scope: str,
    width: int,
    gain: float = 1.0,
    *,
    bias: bool = True,
) -> Tensor:
    """MatMul and, where asked for, Add of the bias; weight [in, out] of variance gain^2 / in;
    columns differ in size like rows of ``normal``.
    """
    fan_in = int(x.value.shape[-1])
    weight = np.ascontiguousarray(normal(writer, (width, fan_in), gain * fan_in**-0.5).T)
    y = writer.op("MatMul", [x, writer.parameter(_module(scope, "weight"), weight)], scope)
    if not bias:
        return y
    drawn = (0.1 * writer.rng.standard_normal(width)).astype(np.float32)
    return writer.op("Add", [writer.parameter(_module(scope, "bias"), drawn), y], scope)


def layer_norm(
    writer: NetworkWriter, x: Tensor, scope: str, module: str = "", epsilon: float = 1e-12
) -> Tensor:
    """LayerNormalization over the last axis with a scale in [0.5, 1.5] and a small bias.

    ``module`` replaces the scope in the names of the parameters.
    """
    width = int(x.value.shape[-1])
    drawn = {
        "weight": writer.rng.uniform(0.5, 1.5, width).astype(np.float32),
        "bias": (0.1 * writer.rng.standard_normal(width)).astype(np.float32),
    }
    parameters = [
        writer.parameter(_module(module or scope, name), value) for name, value in drawn.items()
    ]
    return writer.op("LayerNormalization", [x, *parameters], scope, axis=-1, epsilon=epsilon)


def rms_norm(writer: NetworkWriter, x: Tensor, scope: str, epsilon: float) -> Tensor:
    """Normalization by root mean squares over the last axis, with a scale in [0.5, 1.5], in its parts:
    Zhang & Sennrich 2019 (arXiv:1910.07467).
    """
    two, small, one = (
        writer.constant(f"{scope}/Constant_{name}", np.array(number, np.float32))
        for name, number in (("two", 2.0), ("epsilon", epsilon), ("one", 1.0))
    )
    drawn = writer.rng.uniform(0.5, 1.5, int(x.value.shape[-1])).astype(np.float32)
    squares = writer.op("Pow", [x, two], scope)
    mean = writer.op("ReduceMean", [squares], scope, axes=[-1], keepdims=1)
    root = writer.op("Sqrt", [writer.op("Add", [mean, small], scope)], scope)
    y = writer.op("Mul", [x, writer.op("Div", [one, root], scope)], scope)
    return writer.op("Mul", [writer.parameter(_module(scope, "weight"), drawn), y], scope)


def classifier(writer: NetworkWriter, x: Tensor, scope: str, classes: int) -> Tensor:
    """Linear layer (Gemm, transposed weight) from features ``[n, c]`` to logits ``[n, classes]``
    that differ between inputs.

    Random features are mostly common to all inputs, which would give every input the same top
    class. The bias removes the mean logit over the samples and the weight is scaled to a standard
    deviation of 2 around it, so that top-1 agreement and SQNR speak about what the network says of
    *this* input. ValueError with fewer than two samples.
    """
    parameters = _spread_head(writer, x.value.astype(np.float64), scope, classes, ())
    return writer.op("Gemm", [x, *parameters], scope, alpha=1.0, beta=1.0, transB=1)


def classes_of_pixels(writer: NetworkWriter, x: Tensor, scope: str, classes: int) -> Tensor:
    """1x1 convolution of features ``[n, c, h, w]`` to logits ``[n, classes, h, w]``, scaled as the
    classifier is, over samples and pixels.
    """
    pixels = x.value.transpose(0, 2, 3, 1).reshape(-1, x.value.shape[1]).astype(np.float64)
    parameters = _spread_head(writer, pixels, scope, classes, (1, 1))
    return writer.op("Conv", [x, *parameters], scope, kernel_shape=[1, 1])


def _spread_head(
    writer: NetworkWriter, features: Array, scope: str, classes: int, kernel: tuple[int, ...]
) -> list[Tensor]:
    """Weight ``[classes, c, *kernel]`` and bias of a head over the rows of ``features`` f64
    ``[rows, c]``; ValueError with fewer than two rows.
    """
    if len(features) < 2:
        raise ValueError(
            "a classifier is scaled on how logits differ between inputs: give at least two samples"
        )
    weight = normal(writer, (classes, features.shape[1]), features.shape[1] ** -0.5)
    logits = features @ weight.T.astype(np.float64)
    scale = float(rounded(np.asarray(2.0 / (logits - logits.mean(axis=0)).std())))
    weight = (weight * np.float32(scale)).astype(np.float32)
    bias = rounded(-(features @ weight.T.astype(np.float64)).mean(axis=0))
    return [
        writer.parameter(_dotted(scope, "weight"), weight.reshape(classes, -1, *kernel)),
        writer.parameter(_dotted(scope, "bias"), bias),
    ]


def _dotted(scope: str, name: str) -> str:
    """Initializer name of the torch exporter for a module scope: "/layer1/layer1.0/conv1" +
    "weight" gives "layer1.0.conv1.weight".
    """
    parts: list[str] = []
    for part in scope.strip("/").split("/"):
        prefix = ".".join(parts)
        parts = part.split(".") if prefix and part.startswith(prefix + ".") else [*parts, part]
    return ".".join([*parts, name])


def _module(scope: str, name: str) -> str:
    """Initializer name of an encoder: "/encoder/layer.0/query" + "bias" gives
    "encoder.layer.0.query.bias".
    """
    return ".".join([*scope.strip("/").split("/"), name])
