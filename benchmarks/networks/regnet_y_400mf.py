"""RegNetY-400MF: Radosavovic et al. 2020 (arXiv:2003.13678), with the widths and depths that its
formula gives in torchvision.
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
    relu,
    squeeze_and_excite,
)
from .samples import sample_images
from .writer import NetworkWriter, Tensor

_STAGES = ((48, 1), (104, 3), (208, 6), (440, 6))  # channels, blocks; the first has stride 2
_GROUP_WIDTH = 8

_conv_bn = partial(conv_bn_act, act=relu)


def build_regnet_y_400mf(seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return RegNetY-400MF: ``input`` f32 [1, 3, 224, 224] to ``logits`` [1, 1000]; 4,344,144
    parameters.
    """
    writer = NetworkWriter("regnet_y_400mf", seed)
    x = writer.input("input", sample_images(np.random.default_rng([seed, 1]), samples))
    x = _conv_bn(writer, x, "/stem", 32, 3, 2)
    for stage, (channels, blocks) in enumerate(_STAGES, start=1):
        for block in range(blocks):
            scope = f"/trunk_output/block{stage}/block{stage}-{block}"
            x = _block(writer, x, scope, channels, 1 if block else 2)
    return writer.model({"logits": classifier(writer, global_pool(writer, x, ""), "/fc", 1000)})


def _block(writer: NetworkWriter, x: Tensor, scope: str, channels: int, stride: int) -> Tensor:
    """1x1, 3x3 in groups of 8 channels, squeeze and excitation to a quarter of the block's input,
    1x1, beside an identity or projected shortcut.

    The gain of the branch is small for the reason given at ResNet's bottleneck.
    """
    inputs = int(x.value.shape[1])
    y = _conv_bn(writer, x, f"{scope}/f/a", channels, 1)
    y = _conv_bn(writer, y, f"{scope}/f/b", channels, 3, stride, channels // _GROUP_WIDTH)
    y = squeeze_and_excite(writer, y, f"{scope}/f/se", round(inputs / 4), relu)
    y = conv2d(writer, y, f"{scope}/f/c/c.0", channels, 1)
    y = batch_norm(writer, y, f"{scope}/f/c/c.1", gain=0.2, shift=0.0)
    if stride > 1 or inputs != channels:
        x = conv2d(writer, x, f"{scope}/proj/proj.0", channels, 1, stride)
        x = batch_norm(writer, x, f"{scope}/proj/proj.1")
    return relu(writer, writer.op("Add", [x, y], scope), f"{scope}/activation")
