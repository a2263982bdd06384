"""What one session gives for ten feeds of scales, zero points or ranges is, byte for byte, what ten
models give that have them as constants: products, convolutions and quantizers alone, of random shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from laws.runtimes import EACH_RUNTIME
from onnx import helper
from support.onnx_cases import model, node

import fqfuse

OPENVINO = "org.openvinotoolkit"
FEEDS = 10
Arrays = dict[str, np.ndarray]


@dataclass
class Drawn:
    """A model whose parameters may be inputs or constants, and what is fed.

    Attributes:
        nodes: of the model.
        constants: weights and bias.
        x: name, type and shape of the data; a size that the model leaves open is negative.
        fed: the parameters' types and shapes.
    """

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: Arrays = field(default_factory=dict)
    x: tuple[str, type, tuple[int, ...]] = ("x", np.float32, ())
    fed: dict[str, tuple[type, tuple[int, ...]]] = field(default_factory=dict)

    def yes(self, chances: int = 2) -> bool:
        return int(self.rng.integers(chances)) == 0

    def size(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, most + 1))

    def codes(self, kind: type, shape: tuple[int, ...]) -> np.ndarray:
        info = np.iinfo(kind)
        return self.rng.integers(info.min, info.max + 1, shape).astype(kind)

    def scales(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.uniform(0.004, 0.05, shape).astype(np.float32)

    def fills(self) -> Arrays:
        """The parameters of one run."""
        found = {
            name: self.codes(kind, shape) if kind is not np.float32 else self.scales(shape)
            for name, (kind, shape) in self.fed.items()
        }
        for low, high in (("il", "ih"), ("ol", "oh")):
            if low in found:  # steps of 8 bits, so that f32 holds both ends
                step, zero = self.rng.integers(129, 256) / 2.0**14, self.rng.integers(0, 256)
                found[low], found[high] = np.float32(-zero * step), np.float32((255 - zero) * step)
        if "il" in found:  # the zero point of a product's source is that of its output range
            found["ol"], found["oh"] = found["il"], found["ih"]
        return found

    def data(self, given: Arrays) -> np.ndarray:
        """Codes, or numbers next to no tie of the quantizer by these parameters."""
        _, kind, sizes = self.x
        shape = tuple(abs(size) for size in sizes)
        if kind is not np.float32:
            return self.codes(kind, shape)
        index = self.rng.integers(-20, 276, shape) + self.rng.uniform(-0.4, 0.4, shape)
        if "il" in given:
            low, high = float(given["il"]), float(given["ih"])
            return (low + index * (high - low) / 255).astype(np.float32)
        along = (-1,) + (1,) * (len(shape) - 2) if given["qs"].ndim else ()
        scale, zero = (given[name].astype(np.float64).reshape(along) for name in ("qs", "qz"))
        return ((index - zero) * scale).astype(np.float32)

    def built(self, held: Arrays) -> onnx.ModelProto:
        """The model with these parameters as constants."""
        name, kind, sizes = self.x
        shapes = {name: [size if size > 0 else f"S{i}" for i, size in enumerate(sizes)]}
        shapes |= {one: list(shape) for one, (_, shape) in self.fed.items() if one not in held}
        kinds = {name: kind, **{one: kind for one, (kind, _) in self.fed.items()}}
        return model(
            self.nodes,
            inputs=shapes,
            constants={**self.constants, **held},
            types={one: helper.np_dtype_to_tensor_dtype(np.dtype(of)) for one, of in kinds.items()},
            domains={OPENVINO: 1},
        )


# -- what is drawn ---------------------------------------------------------------------------------


def source(d: Drawn, shape: tuple[int, ...], *, per_channel: bool = False) -> str:
    """The data behind a quantizer: codes that are decoded, Q/DQ, or FakeQuantize."""
    form = d.rng.choice(["codes"] if per_channel else ["codes", "codes", "ranges"])
    if form == "ranges":
        d.x, d.fed = (
            ("x", np.float32, shape),
            {
                **d.fed,
                **dict.fromkeys(("il", "ih", "ol", "oh"), (np.float32, ())),
            },
        )
        d.nodes.append(
            node("FakeQuantize", ["x", "il", "ih", "ol", "oh"], ["d"], domain=OPENVINO, levels=256)
        )
        return "d"
    kind = d.rng.choice([np.uint8, np.int8])
    along = (abs(shape[1]),) if per_channel else ()
    d.x, d.fed = ("x", kind, shape), {**d.fed, "s": (np.float32, along)}
    zero = ["z"] if not d.yes(3) else []
    if zero:
        d.fed["z"] = (kind, along)
    d.nodes.append(node("DequantizeLinear", ["x", "s", *zero], ["d"], axis=1))
    return "d"


def weights(d: Drawn, shape: tuple[int, ...], axis: int) -> str:
    """Codes of s8 by fed or constant scales, one or one for each output channel; one where the axis
    is -1.
    """
    d.constants["w"] = d.codes(np.int8, shape)
    along = (shape[axis],) if axis >= 0 and d.yes() else ()
    if d.yes():
        d.fed["ws"] = (np.float32, along)
    else:
        d.constants["ws"] = d.scales(along)
    d.nodes.append(node("DequantizeLinear", ["w", "ws"], ["v"], axis=max(axis, 0)))
    return "v"


def ended(d: Drawn, value: str, channels: tuple[int, ...]) -> None:
    """Bias and activation, or neither."""
    if d.yes():
        d.constants["b"] = d.rng.standard_normal(channels).astype(np.float32)
        d.nodes.append(node("Add", [value, "b"], ["a"]))
        value = "a"
    d.nodes.append(node("Relu" if d.yes() else "Identity", [value], ["y"]))


def matmul(d: Drawn) -> None:
    inner, outer = d.size(1, 40), d.size(1, 40)
    lead = tuple(-d.size(1, 5) if d.yes() else d.size(1, 5) for _ in range(d.size(1, 2)))
    left = source(d, (*lead, inner))
    d.nodes.append(node("MatMul", [left, weights(d, (inner, outer), 1)], ["m"]))
    ended(d, "m", (outer,))


def convolution(d: Drawn) -> None:
    groups = d.size(1, 3)
    inputs, outputs = d.size(1, 6) * groups, d.size(1, 8) * groups
    kernel, pads = (d.size(1, 3), d.size(1, 3)), [d.size(0, 1) for _ in range(4)]
    left = source(d, (-d.size(1, 3), inputs, d.size(4, 9), d.size(4, 9)))
    right = weights(d, (outputs, inputs // groups, *kernel), 0)
    strides = [d.size(1, 2), d.size(1, 2)]
    more = {"group": groups, "pads": pads, "strides": strides}
    d.nodes.append(node("Conv", [left, right], ["m"], **more))
    ended(d, "m", (outputs, 1, 1))


def deconvolution(d: Drawn) -> None:
    groups = d.size(1, 2)
    inputs, outputs = d.size(1, 6) * groups, d.size(1, 6) * groups
    kernel, pads = (d.size(1, 3), d.size(1, 3)), [d.size(0, 1) for _ in range(4)]
    left = source(d, (-d.size(1, 3), inputs, d.size(4, 7), d.size(4, 7)))
    right = weights(d, (inputs, outputs // groups, *kernel), 1 if groups == 1 else -1)
    strides = [d.size(1, 2), d.size(1, 2)]
    more = {"group": groups, "pads": pads, "strides": strides}
    d.nodes.append(node("ConvTranspose", [left, right], ["m"], **more))
    ended(d, "m", (outputs, 1, 1))


def decoded(d: Drawn) -> None:
    shape = tuple(-d.size(1, 5) if d.yes(4) else d.size(1, 6) for _ in range(d.size(2, 4)))
    shape = (shape[0], abs(shape[1]), *shape[2:])
    # a constant that is added is part of what decodes, where that is constant, too
    d.nodes.append(node("Relu", [source(d, shape, per_channel=d.yes())], ["y"]))


def encoded(d: Drawn) -> None:
    """A QuantizeLinear by fed parameters: the same codes, next to no tie."""
    kind, shape = d.rng.choice([np.uint8, np.int8]), (-d.size(1, 3), d.size(1, 5), d.size(1, 9))
    along = (shape[1],) if d.yes() else ()
    d.x, d.fed = ("x", np.float32, shape), {"qs": (np.float32, along), "qz": (kind, along)}
    d.nodes.append(node("QuantizeLinear", ["x", "qs", "qz"], ["y"], axis=1))


FAMILY = {
    "matmul": matmul,
    "convolution": convolution,
    "deconvolution": deconvolution,
    "decoded": decoded,
    "encoded": encoded,
}


@EACH_RUNTIME
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("op", FAMILY)
def test_fed_parameters_are_constant_ones(op: str, seed: int, runtime: str) -> None:
    drawn = Drawn(np.random.default_rng([seed, *op.encode()]))
    FAMILY[op](drawn)
    plan = fqfuse.compile(drawn.built({}))
    assert not any(step.op == "FakeQuantize" for step in plan.steps)
    session = fqfuse.InferenceSession(plan, runtime, 1)
    for run in range(FEEDS):
        given = drawn.fills()
        x = {drawn.x[0]: drawn.data(given)}
        alone = fqfuse.InferenceSession(fqfuse.compile(drawn.built(given)), runtime, 1)
        (expected,), (found,) = alone.run(None, x), session.run(None, {**x, **given})
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes(), (run, given)
