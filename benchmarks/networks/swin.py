"""The first two stages of Swin-T: Liu et al. 2021 (arXiv:2103.14030): attention in windows of 7x7,
every other one shifted, with a bias for relative positions.

Written as torch exporters do: a shift is Slice and Concat for each axis, maps are padded to whole
windows (here by nothing), merged patches are strided slices side by side.
"""

from __future__ import annotations

import numpy as np
import onnx

from fqfuse.measure.arrays import Array

from .attention import attention_of_joined, feed_forward
from .layers import classifier, conv2d, layer_norm, linear, normal
from .samples import sample_images
from .writer import NetworkWriter, Tensor

STAGES = ((96, 3), (192, 6))  # channels, heads; two blocks each
WINDOW, PATCH, CLASSES = 7, 4, 1000
EPSILON = 1e-5


def build_swin(seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return the network: ``input`` f32 [1, 3, 224, 224] to ``logits`` [1, 1000]."""
    writer = NetworkWriter("swin", seed)
    images = sample_images(np.random.default_rng([seed, 1]), samples)
    x = writer.input("input", images)
    x = conv2d(writer, x, "/features.0/features.0.0", STAGES[0][0], PATCH, PATCH, pad=0, bias=True)
    x = writer.op("Transpose", [x], "/features.0", perm=[0, 2, 3, 1])
    x = layer_norm(writer, x, "/features.0/features.0.2", epsilon=EPSILON)
    for stage, (channels, heads) in enumerate(STAGES):
        if stage:
            x = _merged(writer, x, f"/features.{2 * stage}", channels)
        for block in range(2):
            scope = f"/features.{2 * stage + 1}/features.{2 * stage + 1}.{block}"
            x = _block(writer, x, scope, heads, block * (WINDOW // 2))
    x = layer_norm(writer, x, "/norm", epsilon=EPSILON)
    x = writer.op("ReduceMean", [x], "/avgpool", axes=[1, 2], keepdims=0)
    return writer.model({"logits": classifier(writer, x, "/head", CLASSES)})


def _block(writer: NetworkWriter, x: Tensor, scope: str, heads: int, shift: int) -> Tensor:
    """Attention in windows and two linear layers, each of the normalized map and added to it."""
    y = layer_norm(writer, x, f"{scope}/norm1", epsilon=EPSILON)
    y = _window_attention(writer, y, f"{scope}/attn", heads, shift)
    x = writer.op("Add", [x, y], scope)
    y = layer_norm(writer, x, f"{scope}/norm2", epsilon=EPSILON)
    y = feed_forward(writer, y, f"{scope}/mlp", 4 * int(x.value.shape[-1]))
    return writer.op("Add", [x, y], scope)


def _window_attention(
    writer: NetworkWriter, x: Tensor, scope: str, heads: int, shift: int
) -> Tensor:
    """Attention within each window of the map [n, h, w, c], shifted by ``shift`` and back."""
    side, channels = (int(extent) for extent in x.value.shape[2:])
    count = side // WINDOW
    widths = writer.constant(f"{scope}/Constant_widths", np.zeros(8, np.int64))
    x = writer.op("Pad", [x, widths], scope, mode="constant")
    if shift:
        x = _rolled(writer, x, scope, shift)
    windows = [-1, count, WINDOW, count, WINDOW, channels]
    x = _reshaped(writer, x, scope, "windows", windows)
    x = writer.op("Transpose", [x], scope, perm=[0, 1, 3, 2, 4, 5])
    x = _reshaped(writer, x, scope, "tokens", [-1, WINDOW**2, channels])
    bias = _position_bias(writer, heads)
    mask = _mask(side, shift)[:, None] if shift else None
    x = attention_of_joined(writer, x, scope, heads, bias, mask)
    x = _reshaped(writer, x, scope, "apart", [-1, count, count, WINDOW, WINDOW, channels])
    x = writer.op("Transpose", [x], scope, perm=[0, 1, 3, 2, 4, 5])
    x = _reshaped(writer, x, scope, "map", [-1, side, side, channels])
    return _rolled(writer, x, scope, -shift) if shift else x


def _position_bias(writer: NetworkWriter, heads: int) -> Array:
    """A number for each head and difference of positions: f32 [1, heads, 49, 49]."""
    table = normal(writer, ((2 * WINDOW - 1) ** 2, heads), 0.5)
    at = np.stack(np.meshgrid(np.arange(WINDOW), np.arange(WINDOW), indexing="ij")).reshape(2, -1)
    rows, columns = at[:, :, None] - at[:, None, :] + WINDOW - 1
    bias: Array = table[rows * (2 * WINDOW - 1) + columns].transpose(2, 0, 1)[None]
    return np.ascontiguousarray(bias)


def _mask(side: int, shift: int) -> Array:
    """-100, as the authors have it, between positions that a shift brought into one window from
    different places, else 0: f32 [windows, 49, 49].
    """
    places = np.zeros(side, np.int64)
    places[side - WINDOW : side - shift], places[side - shift :] = 1, 2
    count = side // WINDOW
    areas = (3 * places[:, None] + places).reshape(count, WINDOW, count, WINDOW)
    windows = areas.transpose(0, 2, 1, 3).reshape(count**2, WINDOW**2)
    apart = windows[:, :, None] != windows[:, None, :]
    return np.where(apart, np.float32(-100), np.float32(0))


def _rolled(writer: NetworkWriter, x: Tensor, scope: str, shift: int) -> Tensor:
    """The map [n, h, w, c] with its first ``shift`` rows and columns behind the others; its last
    ones in front where ``shift`` is negative.
    """
    for axis in (1, 2):
        parts = [
            _slice(writer, x, f"{scope}/roll{shift}_{axis}_{start}", axis, start, end)
            for start, end in ((shift, 2**31 - 1), (0, shift))
        ]
        x = writer.op("Concat", parts, scope, axis=axis)
    return x


def _slice(
    writer: NetworkWriter, x: Tensor, scope: str, axis: int, start: int, end: int, step: int = 1
) -> Tensor:
    given = {"starts": start, "ends": end, "axes": axis, "steps": step}
    ends = [
        writer.constant(f"{scope}/{key}", np.array([value], np.int64))
        for key, value in given.items()
    ]
    return writer.op("Slice", [x, *ends], scope)


def _merged(writer: NetworkWriter, x: Tensor, scope: str, channels: int) -> Tensor:
    """Four neighbours side by side, normalized, then a product: half the size."""
    parts = []
    for row, column in ((0, 0), (1, 0), (0, 1), (1, 1)):
        part = f"{scope}/part{row}{column}"
        y = _slice(writer, x, f"{part}/rows", 1, row, 2**31 - 1, 2)
        parts.append(_slice(writer, y, f"{part}/columns", 2, column, 2**31 - 1, 2))
    x = writer.op("Concat", parts, scope, axis=-1)
    x = layer_norm(writer, x, f"{scope}/norm", epsilon=EPSILON)
    return linear(writer, x, f"{scope}/reduction", channels, bias=False)


def _reshaped(writer: NetworkWriter, x: Tensor, scope: str, name: str, shape: list[int]) -> Tensor:
    target = writer.constant(f"{scope}/Constant_{name}", np.array(shape, np.int64))
    return writer.op("Reshape", [x, target], scope)
