"""Random nodes of what ONNX Runtime's optimizers write: attributes, optional inputs and shapes are
drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator
from onnx import helper
from support.onnx_cases import model, node

MICROSOFT = "com.microsoft"
Draw = Callable[[Generator], "Case"]


@dataclass
class Case:
    """One node with what it reads.

    Attributes:
        op, domain, attrs: of the node.
        inputs: name -> array, in order; None where an optional one is absent.
        constant: names of inputs that are initializers; others are fed.
        outputs: names of its outputs, '' where absent.
        free: names of inputs whose sizes the model does not know.
        scale: of the results: what the tolerance is multiplied by.
        visible: output -> the part of it that has a meaning.
        stated: outputs whose type, f32, the model must state.
    """

    op: str
    inputs: dict[str, Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    constant: frozenset[str] = frozenset()
    outputs: Sequence[str] = ("y",)
    domain: str = MICROSOFT
    free: bool = False
    scale: float = 1.0
    opset: int = 21
    visible: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    stated: Sequence[str] = ("qk",)

    @property
    def feeds(self) -> dict[str, Any]:
        """What is fed."""
        return {k: v for k, v in self.inputs.items() if v is not None and k not in self.constant}

    def seen(self, name: str, array: Any) -> Any:
        """The part of an output that has a meaning."""
        return self.visible[name](array) if name in self.visible else array

    def model(self) -> onnx.ModelProto:
        """The model of this node alone."""
        names = [name if value is not None else "" for name, value in self.inputs.items()]
        while names and not names[-1]:
            names.pop()
        made = node(self.op, names, self.outputs, name="n", domain=self.domain, **self.attrs)
        feeds = self.feeds
        proto = model(
            [made],
            inputs={
                name: [f"{name}{i}" for i in range(v.ndim)] if self.free else v.shape
                for name, v in feeds.items()
            },
            outputs=[name for name in self.outputs if name],
            constants={
                name: self.inputs[name] for name in self.constant if self.inputs[name] is not None
            },
            domains={self.domain: 1} if self.domain else {},
            types={n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()},
            opset=self.opset,
        )
        for output in proto.graph.output:
            if output.name in self.stated:
                output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        return proto


def floats(rng: Generator, *shape: int) -> np.ndarray[Any, Any]:
    """Normally distributed f32."""
    return rng.standard_normal(shape).astype(np.float32)


def maybe(rng: Generator, value: Any) -> Any:
    """The value, or None."""
    return value if rng.random() < 0.5 else None


def sizes(rng: Generator, count: int, most: int = 6) -> list[int]:
    """Some sizes, none of them 0."""
    return [int(n) for n in rng.integers(1, most, count)]


def chosen(rng: Generator, *values: Any) -> Any:
    """One of the values."""
    return values[int(rng.integers(len(values)))]


def given(rng: Generator, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Each attribute, or none: its default."""
    return {name: value for name, value in attrs.items() if rng.random() < 0.7}


def number(rng: Generator, low: float, high: float) -> float:
    """A number in between."""
    return float(rng.uniform(low, high))


def some(rng: Generator, *names: str) -> frozenset[str]:
    """Some of the names."""
    return frozenset(name for name in names if rng.random() < 0.5)


def broken(rng: Generator, case: Case) -> Case:
    """The case with an input absent, of another shape or type, or another value of an attribute."""
    name = chosen(rng, *case.inputs)
    value, kind = case.inputs[name], int(rng.integers(4))
    if kind == 0 and case.attrs:
        other = chosen(rng, 0, -1, 2**40, "x", 1.5, [1, 2], -7, 3)
        case.attrs[chosen(rng, *case.attrs)] = other
    elif kind == 1 or value is None:
        case.inputs[name] = None
    elif kind == 2:
        case.inputs[name] = value.reshape(*value.shape, 1) if rng.random() < 0.5 else value.ravel()
    else:
        types = (np.float16, np.int64, np.bool_, np.float64, np.uint8)
        case.inputs[name] = value.astype(chosen(rng, *types))
    return case


# -- products --------------------------------------------------------------------------------------


def activation(rng: Generator) -> tuple[str, list[float]]:
    """One of those that ONNX Runtime fuses into convolutions, with its parameters."""
    name = chosen(rng, "", "Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid")
    low = number(rng, -1, 0.2)
    return name, {
        "LeakyRelu": [number(rng, 0, 0.5)],
        "Clip": [low, low + number(rng, 0.1, 1)],
        "HardSigmoid": [number(rng, 0.1, 0.4), number(rng, 0.2, 0.7)],
    }.get(name, [])


def _convolution(rng: Generator) -> Case:
    group = chosen(rng, 1, 1, 2)
    n, rows, h, w = (*sizes(rng, 2, 4), *(int(v) for v in rng.integers(5, 9, 2)))
    rows, per = rows * group, sizes(rng, 1, 4)[0]
    kernel = [int(v) for v in rng.integers(1, 4, 2)]
    attrs = given(
        rng,
        {
            "kernel_shape": kernel,
            "pads": [1, 0, 1, 1],
            "strides": sizes(rng, 2, 3),
            "dilations": [1, 1],
        },
    )
    if "pads" not in attrs and rng.random() < 0.3:
        attrs["auto_pad"] = chosen(rng, "SAME_UPPER", "SAME_LOWER", "VALID")
    attrs["group"] = group
    name, parameters = activation(rng)
    if name:
        attrs["activation"] = name
    if parameters:
        attrs["activation_params"] = parameters
    x, weights = floats(rng, n, per * group, h, w), floats(rng, rows, per, *kernel)
    inputs = {"x": x, "w": weights, "b": maybe(rng, floats(rng, rows)), "z": None}
    case = Case("FusedConv", inputs, attrs, frozenset("wb"), scale=3.0)
    if rng.random() < 0.5:
        shape = convolved_shape(case)
        inputs["z"] = floats(rng, *shape)
    return case


def convolved_shape(case: Case) -> tuple[int, ...]:
    """Of the result of a convolution: what ONNX says."""
    kept = {k: v for k, v in case.attrs.items() if not k.startswith("activation")}
    plain = Case("Conv", {k: case.inputs[k] for k in "xwb"}, kept, case.constant, domain="")
    inferred = onnx.shape_inference.infer_shapes(plain.model())
    return tuple(d.dim_value for d in inferred.graph.output[0].type.tensor_type.shape.dim)


def _matrix_product(rng: Generator) -> Case:
    m, k, n = sizes(rng, 3)
    batch = sizes(rng, int(rng.integers(3)), 4)
    attrs = {
        "transA": int(rng.integers(2)),
        "transB": int(rng.integers(2)),
        "alpha": number(rng, 0.1, 2),
    }
    sides = [(m, k), (k, n)]
    whole = rng.random() < 0.3 and len(batch) > 0
    shapes = []
    for index, side in enumerate("AB"):
        rows, columns = sides[index][::-1] if attrs[f"trans{side}"] else sides[index]
        behind = whole and rng.random() < 0.7
        if behind:
            attrs[f"transBatch{side}"] = 1
        shapes.append((rows, *batch, columns) if behind else (*batch, rows, columns))
    if rng.random() < 0.2 and not whole:
        shapes[1] = shapes[1][-2:]
    kept = {k: v for k, v in attrs.items() if v or rng.random() < 0.5}
    inputs = {"a": floats(rng, *shapes[0]), "b": floats(rng, *shapes[1])}
    return Case("FusedMatMul", inputs, kept, some(rng, "b"), scale=3.0, free=False)


def _gemm(rng: Generator) -> Case:
    m, k, n = sizes(rng, 3)
    attrs: dict[str, Any] = {"transA": int(rng.integers(2)), "transB": int(rng.integers(2))}
    attrs |= given(rng, {"alpha": number(rng, 0.1, 2), "beta": number(rng, 0.1, 2)})
    name = chosen(rng, "Relu", "Tanh", "Sigmoid", "LeakyRelu", "Elu", "HardSigmoid", "Softsign")
    attrs["activation"] = name
    if name in ("LeakyRelu", "Elu", "HardSigmoid"):
        attrs["activation_alpha"] = number(rng, 0.1, 1)
    if name == "HardSigmoid":
        attrs["activation_beta"] = number(rng, 0.1, 1)
    a = floats(rng, *((k, m) if attrs["transA"] else (m, k)))
    b = floats(rng, *((n, k) if attrs["transB"] else (k, n)))
    c = chosen(rng, None, floats(rng, n), floats(rng, m, 1), floats(rng, m, n))
    return Case("FusedGemm", {"a": a, "b": b, "c": c}, attrs, some(rng, "b", "c"), scale=3.0)


# -- elementwise -----------------------------------------------------------------------------------


def _gelu(op: str) -> Draw:
    def draw(rng: Generator) -> Case:
        shape = sizes(rng, int(rng.integers(1, 4)), 9)
        bias = floats(rng, shape[-1])
        if op in ("Gelu", "QuickGelu"):
            attrs = given(rng, {"alpha": number(rng, 0.5, 2)}) if op == "QuickGelu" else {}
            return Case(op, {"x": floats(rng, *shape)}, attrs, free=rng.random() < 0.3)
        if op == "FastGelu":
            bias = maybe(rng, bias)
        return Case(op, {"x": floats(rng, *shape), "b": bias}, {}, some(rng, "b"))

    return draw


def _normalized_sum(rng: Generator, op: str = "SkipLayerNormalization") -> Case:
    b, s, h = sizes(rng, 3, 7)
    h += 2
    shape = (b, s, h)
    skip = chosen(rng, shape, shape, (1, s, h), (s, h))
    inputs = {"x": floats(rng, *shape), "skip": floats(rng, *skip), "gamma": floats(rng, h)}
    if op == "SkipLayerNormalization":
        inputs["beta"] = maybe(rng, floats(rng, h))
    inputs["bias"] = maybe(rng, floats(rng, h))
    outputs = chosen(rng, ("y",), ("y", "", "", "sum"))
    attrs = given(rng, {"epsilon": number(rng, 1e-6, 1e-2)})
    constant = frozenset({"gamma", "beta", "bias"}) & inputs.keys()
    return Case(op, inputs, attrs, constant, outputs, scale=3.0)


def _simplified(rng: Generator) -> Case:
    shape = [size + 2 for size in sizes(rng, 3, 7)]
    attrs = given(rng, {"epsilon": number(rng, 1e-6, 1e-2), "axis": -1, "stash_type": 1})
    inputs = {"x": floats(rng, *shape), "scale": floats(rng, shape[-1])}
    return Case(
        "SimplifiedLayerNormalization", inputs, attrs, some(rng, "scale"), domain="", scale=3.0
    )


def _root_mean_square(rng: Generator) -> Case:
    shape = [size + 2 for size in sizes(rng, 3, 7)]
    axis = chosen(rng, -1, -2, 0, 1)
    attrs = given(rng, {"epsilon": number(rng, 1e-6, 1e-2), "stash_type": 1}) | {"axis": axis}
    inputs = {"x": floats(rng, *shape), "scale": floats(rng, *shape[axis:])}
    constant = some(rng, "scale")
    return Case("RMSNormalization", inputs, attrs, constant, domain="", scale=3.0, opset=23)


def _gated_sum(rng: Generator) -> Case:
    shape = sizes(rng, int(rng.integers(1, 4)), 7)
    arrays = {name: floats(rng, *shape) for name in ("x", "added")}
    inputs = {**arrays, "gate": floats(rng, *shape[:-1], 1)}
    return Case("GatedAdd", inputs, {}, some(rng, "added"), free=rng.random() < 0.3)


def _gated_norm(rng: Generator) -> Case:
    groups, size = sizes(rng, 2)
    shape = (*sizes(rng, int(rng.integers(0, 3)), 4), groups * (size + 1))
    inputs = {"x": floats(rng, *shape), "scale": floats(rng, size + 1), "gate": floats(rng, *shape)}
    attrs = given(rng, {"activation": chosen(rng, "silu", "swish", "sigmoid"), "epsilon": 1e-3})
    return Case("GatedRMSNorm", inputs, attrs, some(rng, "scale"), scale=3.0)


# -- ONNX's own under other names ------------------------------------------------------------------


def _trilu(rng: Generator) -> Case:
    k = maybe(rng, np.asarray(int(rng.integers(-3, 4)), np.int64))
    attrs = given(rng, {"upper": int(rng.integers(2))})
    return Case("Trilu", {"x": floats(rng, *sizes(rng, 3)), "k": k}, attrs, frozenset("k"))


def _grid_sample(rng: Generator) -> Case:
    n, c, h, w, rows, columns = sizes(rng, 6)
    attrs = {
        "align_corners": int(rng.integers(2)),
        "mode": chosen(rng, "bilinear", "nearest", "bicubic"),
        "padding_mode": chosen(rng, "zeros", "border", "reflection"),
    }
    grid = rng.uniform(-1.2, 1.2, (n, rows, columns, 2)).astype(np.float32)
    return Case("GridSample", {"x": floats(rng, n, c, h, w), "grid": grid}, given(rng, attrs))


def _bnb4(rng: Generator) -> Case:
    n, k, rows = (int(size) for size in rng.integers(1, 40, 3))
    block = chosen(rng, 16, 32, 64)
    codes = rng.integers(0, 256, -(-n * k // 2)).astype(np.uint8)
    most = np.abs(floats(rng, -(-n * k // block)))
    x = floats(rng, *sizes(rng, int(rng.integers(0, 3))), rows, k)
    attrs = {"K": k, "N": n, "block_size": block, "quant_type": int(rng.integers(2))}
    if rng.random() < 0.5:
        attrs["transB"] = (
            1  # of 0 ONNX Runtime's kernel makes another product, and columns of nothing
        )
    inputs = {"x": x, "codes": codes, "absmax": most}
    return Case("MatMulBnb4", inputs, attrs, frozenset({"codes", "absmax"}))


CASES: Mapping[str, Draw] = {
    "FusedConv": _convolution,
    "FusedMatMul": _matrix_product,
    "FusedGemm": _gemm,
    "Gelu": _gelu("Gelu"),
    "BiasGelu": _gelu("BiasGelu"),
    "FastGelu": _gelu("FastGelu"),
    "QuickGelu": _gelu("QuickGelu"),
    "SkipLayerNormalization": _normalized_sum,
    "SkipSimplifiedLayerNormalization": lambda rng: _normalized_sum(
        rng, "SkipSimplifiedLayerNormalization"
    ),
    "ai.onnx.RMSNormalization": _root_mean_square,
    "ai.onnx.SimplifiedLayerNormalization": _simplified,
    "GatedAdd": _gated_sum,
    "GatedRMSNorm": _gated_norm,
    "Trilu": _trilu,
    "GridSample": _grid_sample,
    "MatMulBnb4": _bnb4,
}
"""Op -> draws a case of it that ONNX Runtime runs on a CPU."""

UNRUN = (
    "BiasAdd",
    "BiasDropout",
    "BiasSoftmax",
    "BiasSplitGelu",
    "FusedMatMulActivation",
    "GemmFastGelu",
    "GroupNorm",
    "RelativePositionBias",
    "SkipGroupNorm",
    "SwiGLU",
)
"""Rows of which ONNX Runtime has no kernel for CPUs: held against NumPy."""
