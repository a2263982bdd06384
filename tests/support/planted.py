"""Small networks with one fault each, as ONNX Runtime's own quantizers write them, and healthy ones."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime import quantization
from onnxruntime.transformers.float16 import convert_float_to_float16
from support.finding_networks import Net
from support.ort_quantizer import quantized_by_ort

SHAPE = [1, 8, 16, 16]
TOKENS = [1, 24, 32]
TYPES = ["Conv", "MatMul", "Gemm", "Concat", "Add", "Softmax", "Sigmoid", "Mul"]
Feeds = Sequence[dict[str, np.ndarray]]


@dataclass(frozen=True)
class Planted:
    """A fault.

    Attributes:
        code: of the finding, or of the step of `fix`, that is about it.
        f32, int8: the models.
        feeds: real inputs, as the calibration has seen such.
        mended: `fix` can repair it.
        sizes: that the model leaves open.
    """

    code: str
    f32: onnx.ModelProto
    int8: onnx.ModelProto
    feeds: Feeds
    mended: bool = True
    sizes: dict[str, int] = field(default_factory=dict)


def inputs(shape: Sequence[int], count: int = 4, factor: float = 1.0, seed: int = 0) -> Feeds:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(0, factor, shape).astype(np.float32)} for _ in range(count)]


def static(f32: onnx.ModelProto, feeds: Feeds, **options: Any) -> onnx.ModelProto:
    return quantized_by_ort(f32, feeds, **{"op_types_to_quantize": TYPES, **options})


def weights(
    *shape: int, seed: int = 0, uneven: bool = False, large: bool = False, moved: float = 0.0
) -> np.ndarray:
    """Normal; `uneven`: each output channel by a factor of its own, from 1 to 1/300; `large`: next to its ends;
    `moved`: all by so many deviations.
    """
    data = np.random.default_rng(seed).normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape)
    if large:
        data = np.sign(data) * (1 - np.abs(data) / 9) / np.sqrt(np.prod(shape[1:]))
    data += moved / np.sqrt(np.prod(shape[1:]))
    if uneven:
        data *= np.geomspace(1, 1 / 300, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    return data.astype(np.float32)


def conv(net: Net, x: str, name: str, out: str = "", **options: Any) -> str:
    w = net.constant(weights(8, 8, 3, 3, **options))
    return net.op("Conv", x, w, name=name, out=out, pads=[1, 1, 1, 1])


def network(net: Net, x: str = "x", **options: Any) -> str:
    """Three convolutions, the second around a Relu."""
    hidden = net.op("Relu", conv(net, x, "first", seed=1), name="relu1")
    hidden = net.op("Relu", conv(net, hidden, "second", seed=2, **options), name="relu2")
    return conv(net, hidden, "third", seed=3)


def plain(shape: Sequence[int] = SHAPE, **options: Any) -> onnx.ModelProto:
    net = Net()
    net.op("Mul", network(net, **options), net.constant(np.float32(3)), name="last", out="y")
    return net.proto(inputs={"x": list(shape)})


def dead_concat() -> Planted:
    """Boxes of some hundreds beside scores of 0 to 1."""
    net = Net()
    hidden = net.op("Relu", conv(net, "x", "stem", seed=1), name="relu")
    boxes = net.op(
        "Mul", conv(net, hidden, "boxes", seed=2), net.constant(np.float32(200)), name="far"
    )
    scores = net.op("Sigmoid", conv(net, hidden, "scores", seed=3), name="sigmoid")
    net.op("Concat", boxes, scores, name="join", out="y", axis=1)
    f32 = net.proto(inputs={"x": SHAPE})
    feeds = inputs(SHAPE)
    return Planted("few-codes", f32, static(f32, feeds), feeds)


def attention(mask: float = 0.0, places: int = 24) -> onnx.ModelProto:
    net = Net()
    q, k, v = (
        net.op("MatMul", "x", net.constant(weights(32, 32, seed=seed)), name=name)
        for seed, name in enumerate("qkv")
    )
    turned = net.op("Transpose", k, name="turned", perm=[0, 2, 1])
    found = net.op("MatMul", q, turned, name="scores")
    if mask:
        held = np.where(np.arange(places) < places // 2, 0, mask).astype(np.float32)
        found = net.op("Add", found, net.constant(held), name="masked")
    shares = net.op("Softmax", found, name="softmax", axis=-1)
    net.op("MatMul", shares, v, name="values", out="y")
    return net.proto(inputs={"x": [1, places, 32]})


def mask() -> Planted:
    f32, feeds = attention(-3.4e38), inputs(TOKENS)
    return Planted("absurd-scale", f32, static(f32, feeds), feeds)


def one_scale() -> Planted:
    f32, feeds = plain(uneven=True), inputs(SHAPE)
    return Planted("unused-weight-range", f32, static(f32, feeds, per_channel=False), feeds)


def unlike_signs() -> Planted:
    """What comes out of a Relu is unsigned, its neighbour in a concatenation is not: as NNCF writes it, which is
    no part of the environment; by hand.
    """

    def made(quantizing: bool) -> onnx.ModelProto:
        net = Net()
        source = net.fake_quantized("x", -4.0, 3.96875) if quantizing else "x"

        def product(x: str, name: str, inputs: int, seed: int, out: str = "") -> str:
            w = weights(8, inputs, 3, 3, seed=seed)
            top = float(np.abs(w).max())
            held = net.constant(w)
            read = net.fake_quantized(held, -top * 128 / 127, top) if quantizing else held
            return net.op("Conv", x, read, name=name, out=out, pads=[1, 1, 1, 1])

        left = net.op("Relu", product(source, "left", 8, 1), name="relu")
        right = product(source, "right", 8, 2)
        if quantizing:
            left, right = net.fake_quantized(left, 0, 5), net.fake_quantized(right, -5, 4.9609375)
        joined = net.op("Concat", left, right, name="join", axis=1)
        product(joined, "last", 16, 3, "y")
        return net.proto(inputs={"x": SHAPE})

    return Planted("concat-parameters", made(False), made(True), inputs(SHAPE))


def wrong_layer() -> Planted:
    f32, feeds = plain(), inputs(SHAPE)
    return Planted("f32-weights", f32, static(f32, feeds, nodes_to_exclude=["second"]), feeds)


def saturation() -> Planted:
    f32, feeds = plain(large=True), inputs(SHAPE)
    return Planted("saturation-without-vnni", f32, static(f32, feeds), feeds)


def coarse_softmax() -> Planted:
    f32, feeds = attention(places=1024), inputs([1, 1024, 32], 2, 0.5)
    return Planted("coarse-softmax", f32, static(f32, feeds), feeds)


def dynamic() -> Planted:
    net = Net()
    hidden = net.op("MatMul", "x", net.constant(weights(32, 64, seed=1)), name="first")
    hidden = net.op("Relu", hidden, name="relu")
    net.op("MatMul", hidden, net.constant(weights(64, 32, seed=2)), name="second", out="y")
    f32, feeds = net.proto(inputs={"x": [64, 32]}), inputs([64, 32])
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "f32.onnx", Path(folder) / "int8.onnx"
        onnx.save(f32, source)
        quantization.quantize_dynamic(str(source), str(target), per_channel=True)
        return Planted("dynamic-quantizer", f32, onnx.load(target), feeds)


def half_floats() -> Planted:
    f32, feeds = plain(), inputs(SHAPE)
    int8 = convert_float_to_float16(static(f32, feeds))
    halved = [{"x": feed["x"].astype(np.float16)} for feed in feeds]
    return Planted("half-floats", f32, int8, halved)


def open_sizes() -> Planted:
    """The shape of a reshape is read off the input, whose sizes are open."""
    f32, feeds = opened(), inputs([1, 24, 32])
    return Planted("open-sizes", f32, static(f32, feeds), feeds, sizes={"batch": 1, "tokens": 24})


def opened() -> onnx.ModelProto:
    net = Net()
    hidden = net.op("MatMul", "x", net.constant(weights(32, 32, seed=1)), name="first")
    sizes = net.op("Shape", hidden, name="shape")
    count = net.op("Gather", sizes, net.constant(np.int64([1])), name="count", axis=0)
    end = net.op("Squeeze", count, name="end")
    places = net.op(
        "Range", net.constant(np.int64(0)), end, net.constant(np.int64(1)), name="places"
    )
    row, column = (
        net.op("Unsqueeze", places, net.constant(np.int64([axis])), name=f"along{axis}")
        for axis in (0, 1)
    )
    seen = net.op("LessOrEqual", row, column, name="seen")
    low = net.constant(np.float32(-8))
    held = net.op("Where", seen, net.constant(np.float32(0)), low, name="mask")
    turned = net.op("Transpose", hidden, name="turned", perm=[0, 2, 1])
    scores = net.op("Add", net.op("MatMul", hidden, turned, name="scores"), held, name="masked")
    shares = net.op("Softmax", scores, name="softmax", axis=-1)
    net.op("MatMul", shares, hidden, name="values", out="y")
    return net.proto(inputs={"x": ["batch", "tokens", 32]})


def asymmetric() -> Planted:
    f32, feeds = plain(moved=0.7), inputs(SHAPE)
    options = {"WeightSymmetric": False}
    int8 = static(f32, feeds, per_channel=False, extra_options=options)
    return Planted("asymmetric-weights", f32, int8, feeds)


def narrow_range() -> Planted:
    """The calibration has seen inputs a fifth as large."""
    f32, feeds = plain(), inputs(SHAPE)
    return Planted("range", f32, static(f32, inputs(SHAPE, factor=0.2)), feeds)


PLANTED: dict[str, Callable[[], Planted]] = {
    "dead concat": dead_concat,
    "mask": mask,
    "one scale for all weights": one_scale,
    "unlike signs": unlike_signs,
    "wrong layer excluded": wrong_layer,
    "saturation": saturation,
    "coarse softmax": coarse_softmax,
    "dynamic": dynamic,
    "f16": half_floats,
    "open sizes": open_sizes,
    "asymmetric weights": asymmetric,
    "narrow range": narrow_range,
}
