"""EfficientNet-B0: Tan and Le 2019 (arXiv:1905.11946), table 1.

Swish is written as torch exporters do, Sigmoid and Mul, as are the factors of squeeze and
excitation.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx

from .layers import (
    batch_norm,
    classifier,
    conv2d,
    conv_bn_act,
    global_pool,
    silu,
    squeeze_and_excite,
)
from .samples import sample_images
from .writer import NetworkWriter, Tensor

# a larger mean keeps swish off its flat side
_conv_bn_silu = partial(conv_bn_act, act=silu, shift=1.0)

# Rows of the paper's table 1: expansion, output channels, repeats, stride of the first repeat,
# kernel.
_SETTINGS = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def build_efficientnet_b0(seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return EfficientNet-B0: ``input`` f32 [1, 3, 224, 224] to ``logits`` [1, 1000]; 5,288,548
    parameters.
    """
    writer = NetworkWriter("efficientnet_b0", seed)
    x = writer.input("input", sample_images(np.random.default_rng([seed, 1]), samples))
    x = _conv_bn_silu(writer, x, "/features/features.0", 32, 3, 2)
    for stage, (expansion, channels, repeats, stride, kernel) in enumerate(_SETTINGS, start=1):
        for repeat in range(repeats):
            scope = f"/features/features.{stage}/features.{stage}.{repeat}"
            step = 1 if repeat else stride
            x = _inverted_residual(writer, x, scope, expansion, channels, step, kernel)
    x = _conv_bn_silu(writer, x, "/features/features.8", 1280, 1)
    return writer.model(
        {"logits": classifier(writer, global_pool(writer, x, ""), "/classifier/classifier.1", 1000)}
    )


def _inverted_residual(
    writer: NetworkWriter,
    x: Tensor,
    scope: str,
    expansion: int,
    channels: int,
    stride: int,
    kernel: int,
) -> Tensor:
    """Expand 1x1, depthwise, squeeze and excitation to a quarter of the block's input, project 1x1;
    a shortcut joins equal shapes.

    The gain of a branch beside a shortcut is small for the reason given at ResNet's bottleneck.
    """
    inputs = int(x.value.shape[1])
    hidden = inputs * expansion
    y, index = x, 0
    if expansion > 1:
        y, index = _conv_bn_silu(writer, y, f"{scope}/block/block.0", hidden, 1), 1
    y = _conv_bn_silu(
        writer, y, f"{scope}/block/block.{index}", hidden, kernel, stride, group=hidden
    )
    y = squeeze_and_excite(writer, y, f"{scope}/block/block.{index + 1}", inputs // 4, silu)
    last = f"{scope}/block/block.{index + 2}"
    shortcut = stride == 1 and inputs == channels
    y = conv2d(writer, y, f"{last}/{last.rsplit('/', 1)[-1]}.0", channels, 1)
    y = batch_norm(
        writer,
        y,
        f"{last}/{last.rsplit('/', 1)[-1]}.1",
        gain=0.2 if shortcut else 1.0,
        shift=0.0,
    )
    return writer.op("Add", [y, x], scope) if shortcut else y
