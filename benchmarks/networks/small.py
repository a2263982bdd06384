"""Two small convolutional networks with the parts that quantizers differ in: on images of 56x56, so
that a setting is tried in seconds.

`small_resnet` has what ResNet has: BatchNormalization, ReLU, and residual additions with an identity
or a projection beside them (basic blocks, He et al. 2015, arXiv:1512.03385). `small_mobilenet` has
what MobileNetV3 has (Howard et al. 2019, arXiv:1905.02244): depthwise convolutions, hard swish, and
squeeze and excitation, written as torch exporters do (HardSwish, HardSigmoid).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from fqfuse.measure.arrays import Array

from .layers import batch_norm, classifier, conv2d, global_pool, relu
from .samples import sample_images
from .writer import NetworkWriter, Tensor

CLASSES = 100
_SHRINK = 4
STAGES = ((32, 1), (64, 2), (128, 2))  # channels, stride of the first of two blocks
# Expanded channels, output channels, stride, with squeeze and excitation, with hard swish
ROWS = (
    (48, 24, 2, False, False),
    (72, 24, 1, False, False),
    (96, 40, 2, True, True),
    (240, 40, 1, True, True),
    (240, 40, 1, True, True),
    (144, 64, 1, True, True),
)


def sample_small_images(rng: np.random.Generator, count: int) -> Mapping[str, Array]:
    """Return ``count`` synthetic images, f32 ``[count, 3, 56, 56]``."""
    images = sample_images(rng, count)[:, :, ::_SHRINK, ::_SHRINK]
    return {"input": np.ascontiguousarray(images)}


def build_small_resnet(seed: int = 0, samples: int = 8) -> onnx.ModelProto:
    """Return the network: ``input`` f32 [1, 3, 56, 56] to ``logits`` [1, 100]."""
    writer, x = _begin("small_resnet", seed, samples)
    x = relu(writer, batch_norm(writer, conv2d(writer, x, "/conv1", 32, 3, 2), "/bn1"), "/relu")
    for stage, (channels, stride) in enumerate(STAGES, start=1):
        for block in range(2):
            scope = f"/layer{stage}/layer{stage}.{block}"
            x = _basic_block(writer, x, scope, channels, 1 if block else stride)
    return _end(writer, x)


def build_small_mobilenet(seed: int = 0, samples: int = 8) -> onnx.ModelProto:
    """Return the network: ``input`` f32 [1, 3, 56, 56] to ``logits`` [1, 100]."""
    writer, x = _begin("small_mobilenet", seed, samples)
    x = batch_norm(
        writer, conv2d(writer, x, "/features/stem/conv", 16, 3, 2), "/features/stem/norm"
    )
    x = writer.op("HardSwish", [x], "/features/stem/act")
    for index, row in enumerate(ROWS):
        x = _inverted_residual(writer, x, f"/features/block{index}", *row)
    x = batch_norm(writer, conv2d(writer, x, "/features/last/conv", 288, 1), "/features/last/norm")
    return _end(writer, writer.op("HardSwish", [x], "/features/last/act"))


def _begin(name: str, seed: int, samples: int) -> tuple[NetworkWriter, Tensor]:
    writer = NetworkWriter(name, seed)
    images = sample_small_images(np.random.default_rng([seed, 1]), samples)
    return writer, writer.input("input", images["input"])


def _end(writer: NetworkWriter, x: Tensor) -> onnx.ModelProto:
    return writer.model(
        {"logits": classifier(writer, global_pool(writer, x, "/avgpool"), "/fc", CLASSES)}
    )


def _basic_block(
    writer: NetworkWriter, x: Tensor, scope: str, channels: int, stride: int
) -> Tensor:
    """Two 3x3 convolutions beside an identity or projected shortcut; the gain of the branch is small
    for the reason given at ResNet-50's bottleneck.
    """
    y = conv2d(writer, x, f"{scope}/conv1", channels, 3, stride)
    y = relu(writer, batch_norm(writer, y, f"{scope}/bn1"), f"{scope}/relu")
    y = conv2d(writer, y, f"{scope}/conv2", channels, 3)
    y = batch_norm(writer, y, f"{scope}/bn2", gain=0.2, shift=0.0)
    if stride > 1 or int(x.value.shape[1]) != channels:
        down = f"{scope}/downsample"
        x = conv2d(writer, x, f"{down}/downsample.0", channels, 1, stride)
        x = batch_norm(writer, x, f"{down}/downsample.1")
    return relu(writer, writer.op("Add", [y, x], scope), f"{scope}/relu")


def _inverted_residual(
    writer: NetworkWriter,
    x: Tensor,
    scope: str,
    expanded: int,
    channels: int,
    stride: int,
    squeezed: bool,
    hard: bool,
) -> Tensor:
    """Expand 1x1, depthwise 3x3, squeeze and excitation, project 1x1; a shortcut joins equal
    shapes.
    """
    act = "HardSwish" if hard else "Relu"
    y = batch_norm(writer, conv2d(writer, x, f"{scope}/expand", expanded, 1), f"{scope}/norm1")
    y = writer.op(act, [y], f"{scope}/act1")
    y = conv2d(writer, y, f"{scope}/depthwise", expanded, 3, stride, expanded)
    y = writer.op(act, [batch_norm(writer, y, f"{scope}/norm2")], f"{scope}/act2")
    if squeezed:
        y = _squeeze_and_excite(writer, y, f"{scope}/se")
    shortcut = stride == 1 and int(x.value.shape[1]) == channels
    y = conv2d(writer, y, f"{scope}/project", channels, 1)
    y = batch_norm(writer, y, f"{scope}/norm3", gain=0.3 if shortcut else 1.0, shift=0.0)
    return writer.op("Add", [y, x], scope) if shortcut else y


def _squeeze_and_excite(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """A factor in 0..1 for each channel, from the means of all (Hu et al. 2017,
    arXiv:1709.01507).
    """
    channels = int(x.value.shape[1])
    y = writer.op("GlobalAveragePool", [x], f"{scope}/avgpool")
    y = relu(writer, conv2d(writer, y, f"{scope}/fc1", channels // 4, 1), f"{scope}/relu")
    y = conv2d(writer, y, f"{scope}/fc2", channels, 1)
    y = writer.op("HardSigmoid", [y], f"{scope}/scale", alpha=1 / 6, beta=0.5)
    return writer.op("Mul", [y, x], scope)
