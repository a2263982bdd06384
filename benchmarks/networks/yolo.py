"""A detector in the manner of YOLOv8 (Jocher et al. 2023), small: SiLU, parts that are split and
joined, pools of one map side by side, upsampling beside an earlier map, and boxes decoded at the end.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from fqfuse.measure.arrays import Array

from .layers import batch_norm, conv2d, silu
from .samples import sample_images
from .writer import NetworkWriter, Tensor

CLASSES, BOX = 80, 4
_SCENE = 160


def sample_scenes(rng: np.random.Generator, count: int) -> Mapping[str, Array]:
    """Return ``count`` synthetic images, f32 ``[count, 3, 160, 160]``."""
    return {"images": np.ascontiguousarray(sample_images(rng, count)[:, :, :_SCENE, :_SCENE])}


def build_yolo(seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return the network: ``images`` [1, 3, 160, 160] to ``boxes`` [1, 84, 20, 20]."""
    writer = NetworkWriter("yolo", seed)
    images = sample_scenes(np.random.default_rng([seed, 1]), samples)
    x = _conv(writer, writer.input("images", images["images"]), "/model.0", 16, 3, 2)
    x = _split_and_joined(writer, _conv(writer, x, "/model.1", 32, 3, 2), "/model.2", 32)
    low = _split_and_joined(writer, _conv(writer, x, "/model.3", 64, 3, 2), "/model.4", 64)
    x = _split_and_joined(writer, _conv(writer, low, "/model.5", 128, 3, 2), "/model.6", 128)
    x = _pools(writer, x, "/model.7")
    scales = writer.constant("/model.8/Constant", np.array([1, 1, 2, 2], np.float32))
    roi = writer.constant("/model.8/Constant_1", np.array([], np.float32))
    x = writer.op("Resize", [x, roi, scales], "/model.8", mode="nearest")
    x = writer.op("Concat", [x, low], "/model.9", axis=1)
    return writer.model({"boxes": _head(writer, _split_and_joined(writer, x, "/model.10", 64))})


def _conv(
    writer: NetworkWriter, x: Tensor, scope: str, channels: int, kernel: int = 1, stride: int = 1
) -> Tensor:
    """Convolution, BatchNormalization and SiLU."""
    y = conv2d(writer, x, f"{scope}/conv", channels, kernel, stride)
    return silu(writer, batch_norm(writer, y, f"{scope}/bn"), f"{scope}/act")


def _split_and_joined(writer: NetworkWriter, x: Tensor, scope: str, channels: int) -> Tensor:
    """Half of the channels through two convolutions and a shortcut, beside both halves."""
    y = _conv(writer, x, f"{scope}/cv1", channels)
    first, second = (_half(writer, y, scope, channels, number) for number in range(2))
    z = _conv(writer, second, f"{scope}/m.0/cv1", channels // 2, 3)
    z = _conv(writer, z, f"{scope}/m.0/cv2", channels // 2, 3)
    z = writer.op("Add", [second, z], f"{scope}/m.0")
    return _conv(
        writer, writer.op("Concat", [first, second, z], scope, axis=1), f"{scope}/cv2", channels
    )


def _half(writer: NetworkWriter, x: Tensor, scope: str, channels: int, number: int) -> Tensor:
    half = channels // 2
    given = {"starts": number * half, "ends": (number + 1) * half, "axes": 1}
    ends = [
        writer.constant(f"{scope}/Slice_{number}/{name}", np.array([value], np.int64))
        for name, value in given.items()
    ]
    return writer.op("Slice", [x, *ends], scope)


def _pools(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """A map and its maxima over 5x5, 9x9 and 13x13, joined."""
    maps = [_conv(writer, x, f"{scope}/cv1", 64)]
    for _ in range(3):
        pooled = writer.op(
            "MaxPool", maps[-1:], f"{scope}/m", kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4
        )
        maps.append(pooled)
    return _conv(writer, writer.op("Concat", maps, scope, axis=1), f"{scope}/cv2", 128)


def _head(writer: NetworkWriter, x: Tensor) -> Tensor:
    """Boxes in pixels, and the probability of each class."""
    boxes = conv2d(writer, _conv(writer, x, "/model.11/cv2.0", 64, 3), "/model.11/cv2.1", BOX, 1)
    scores = conv2d(
        writer, _conv(writer, x, "/model.11/cv3.0", 64, 3), "/model.11/cv3.1", CLASSES, 1
    )
    stride = writer.constant("/model.11/Constant", np.array(8, np.float32))
    boxes = writer.op("Mul", [boxes, stride], "/model.11")
    scores = writer.op("Sigmoid", [scores], "/model.11")
    return writer.op("Concat", [boxes, scores], "/model.11", axis=1)
