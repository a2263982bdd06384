"""MobileNetV2, width 1.0: Sandler et al. 2018 (arXiv:1801.04381), table 2."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx

from .layers import batch_norm, classifier, conv2d, conv_bn_act, global_pool, relu6
from .samples import sample_images
from .writer import NetworkWriter, Tensor

_conv_bn_relu6 = partial(conv_bn_act, act=relu6)

# Rows of the paper's table 2: expansion t, output channels c, repeats n, stride s of the first
# repeat.
_SETTINGS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def build_mobilenet_v2(seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return MobileNetV2: ``input`` f32 [1, 3, 224, 224] to ``logits`` [1, 1000]; 3,504,872
    parameters.
    """
    writer = NetworkWriter("mobilenet_v2", seed)
    x = writer.input("input", sample_images(np.random.default_rng([seed, 1]), samples))
    x = _conv_bn_relu6(writer, x, "/features/features.0", 32, 3, 2)
    index = 1
    for expansion, channels, repeats, stride in _SETTINGS:
        for repeat in range(repeats):
            x = _inverted_residual(
                writer,
                x,
                f"/features/features.{index}",
                expansion,
                channels,
                stride if repeat == 0 else 1,
            )
            index += 1
    x = _conv_bn_relu6(writer, x, f"/features/features.{index}", 1280, 1)
    return writer.model(
        {"logits": classifier(writer, global_pool(writer, x, ""), "/classifier/classifier.1", 1000)}
    )


def _inverted_residual(
    writer: NetworkWriter, x: Tensor, scope: str, expansion: int, channels: int, stride: int
) -> Tensor:
    """Expand 1x1, depthwise 3x3, project 1x1 without activation; the shortcut joins equal shapes.

    The gain of a branch beside a shortcut is small for the reason given at ResNet's bottleneck.
    """
    hidden = x.value.shape[1] * expansion
    y, index = x, 0
    if expansion > 1:
        y, index = _conv_bn_relu6(writer, y, f"{scope}/conv/conv.0", hidden, 1), 1
    y = _conv_bn_relu6(writer, y, f"{scope}/conv/conv.{index}", hidden, 3, stride, group=hidden)
    y = conv2d(writer, y, f"{scope}/conv/conv.{index + 1}", channels, 1)
    shortcut = stride == 1 and x.value.shape[1] == channels
    y = batch_norm(
        writer, y, f"{scope}/conv/conv.{index + 2}", gain=0.3 if shortcut else 1.0, shift=0.0
    )
    return writer.op("Add", [x, y], scope) if shortcut else y
