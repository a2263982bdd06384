"""A U-Net: Ronneberger et al. 2015 (arXiv:1505.04597), with padding and BatchNormalization, half as
wide, on images of 224x224: maps of the way down stand beside those of the way up.
"""

from __future__ import annotations

import numpy as np
import onnx

from .layers import batch_norm, classes_of_pixels, conv2d, normal, relu
from .samples import sample_images
from .writer import NetworkWriter, Tensor

CHANNELS = (16, 32, 64, 128, 256)  # from the image's size to a sixteenth of it
CLASSES = 21


def build_unet(seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return the network: ``input`` f32 [1, 3, 224, 224] to ``logits`` [1, 21, 224, 224]."""
    writer = NetworkWriter("unet", seed)
    x = writer.input("input", sample_images(np.random.default_rng([seed, 1]), samples))
    beside: list[Tensor] = []
    for level, channels in enumerate(CHANNELS):
        if level:
            beside.append(x)
            x = writer.op("MaxPool", [x], f"/down{level}/pool", kernel_shape=[2, 2], strides=[2, 2])
        x = _double_conv(writer, x, f"/down{level}", channels)
    for level, channels in reversed(list(enumerate(CHANNELS[:-1]))):
        x = _up(writer, x, f"/up{level}/up", channels)
        x = writer.op("Concat", [beside.pop(), x], f"/up{level}", axis=1)
        x = _double_conv(writer, x, f"/up{level}", channels)
    return writer.model({"logits": classes_of_pixels(writer, x, "/outc/conv", CLASSES)})


def _double_conv(writer: NetworkWriter, x: Tensor, scope: str, channels: int) -> Tensor:
    """Twice 3x3 convolution, BatchNormalization and ReLU."""
    for index in range(2):
        x = conv2d(writer, x, f"{scope}/conv/conv.{3 * index}", channels, 3)
        x = batch_norm(writer, x, f"{scope}/conv/conv.{3 * index + 1}")
        x = relu(writer, x, f"{scope}/conv/conv.{3 * index + 2}")
    return x


def _up(writer: NetworkWriter, x: Tensor, scope: str, channels: int) -> Tensor:
    """Transposed 2x2 convolution with stride 2: twice the size."""
    inputs = int(x.value.shape[1])
    # each output has one term of each input channel
    weight = normal(writer, (inputs, channels, 2, 2), inputs**-0.5)
    module = scope.strip("/").replace("/", ".")
    tensors = [
        writer.parameter(f"{module}.weight", weight),
        writer.parameter(
            f"{module}.bias", (0.1 * writer.rng.standard_normal(channels)).astype(np.float32)
        ),
    ]
    return writer.op(
        "ConvTranspose", [x, *tensors], scope, kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4
    )
