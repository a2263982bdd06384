"""A recognizer of text lines in the manner of PP-OCR's (Du et al. 2020, arXiv:2009.09941; PP-LCNet's blocks, Cui et al. 2021,
arXiv:2109.15099): depthwise convolutions and hard swish over an image of 48 rows whose columns become a sequence, two
linear layers and a softmax for each place.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from fqfuse.measure.arrays import Array

from .layers import batch_norm, conv2d, linear, normal, squeeze_and_excite
from .samples import sample_images
from .writer import NetworkWriter, Tensor

ROWS, COLUMNS, CLASSES = 48, 320, 96
# (channels, rows' stride, columns' stride, kernel, squeeze and excitation)
_BLOCKS = (
    (32, 1, 1, 3, False),
    (64, 2, 2, 3, False),
    (64, 1, 1, 3, False),
    (128, 2, 1, 3, False),
    (128, 1, 1, 3, False),
    (192, 2, 1, 3, False),
    (192, 1, 1, 5, False),
    (192, 1, 1, 5, False),
    (256, 2, 1, 5, True),
    (256, 1, 1, 5, True),
)


def sample_lines(rng: np.random.Generator, count: int) -> Mapping[str, Array]:
    """Return ``count`` synthetic images, f32 ``[count, 3, 48, 320]``."""
    wide = sample_images(rng, count, 448)
    return {"x": np.ascontiguousarray(wide[:, :, :ROWS, :COLUMNS])}


def build_recognizer(seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return the network: ``x`` [1, 3, 48, 320] to ``probabilities`` [1, 80, 96]."""
    writer = NetworkWriter("recognizer", seed)
    lines = sample_lines(np.random.default_rng([seed, 1]), samples)
    x = _hard_swish(
        writer,
        batch_norm(
            writer, conv2d(writer, writer.input("x", lines["x"]), "/stem", 16, 3, 2), "/stem/bn"
        ),
        "/stem",
    )
    for number, (channels, rows, columns, kernel, excited) in enumerate(_BLOCKS):
        x = _block(writer, x, f"/blocks.{number}", channels, (rows, columns), kernel, excited)
    x = writer.op("AveragePool", [x], "/pool", kernel_shape=[2, 1], strides=[2, 1])
    x = writer.op("Squeeze", [x, writer.constant("/Constant", np.array([2], np.int64))], "")
    x = writer.op("Transpose", [x], "", perm=[0, 2, 1])
    x = _hard_swish(writer, linear(writer, x, "/neck", 128), "/neck")
    x = linear(writer, x, "/head", CLASSES, 2.0)
    return writer.model({"probabilities": writer.op("Softmax", [x], "", axis=-1)})


def _block(
    writer: NetworkWriter,
    x: Tensor,
    scope: str,
    channels: int,
    strides: tuple[int, int],
    kernel: int,
    excited: bool,
) -> Tensor:
    """A depthwise convolution and a 1x1 one, hard swish behind both."""
    before = int(x.value.shape[1])
    weight = normal(writer, (before, 1, kernel, kernel), (2.0 / kernel**2) ** 0.5)
    parameter = writer.parameter(f"{scope.strip('/')}.dw.weight", weight)
    x = writer.op(
        "Conv",
        [x, parameter],
        f"{scope}/dw",
        group=before,
        kernel_shape=[kernel] * 2,
        pads=[kernel // 2] * 4,
        strides=list(strides),
    )
    x = _hard_swish(writer, batch_norm(writer, x, f"{scope}/dw/bn"), f"{scope}/dw")
    if excited:
        x = squeeze_and_excite(writer, x, f"{scope}/se", before // 4, _relu)
    x = batch_norm(writer, conv2d(writer, x, f"{scope}/pw", channels, 1), f"{scope}/pw/bn")
    return _hard_swish(writer, x, f"{scope}/pw")


def _relu(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    return writer.op("Relu", [x], scope)


def _hard_swish(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """x * clip(x / 6 + 0.5, 0, 1), as exporters write it."""
    gate = writer.op("HardSigmoid", [x], scope, alpha=1 / 6, beta=0.5)
    return writer.op("Mul", [x, gate], scope)
