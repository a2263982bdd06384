"""Runs a graph on intervals: every f32 rounding is widened outward, so that the result holds
whatever order of f32 operations computes it.

A quantizer whose argument lies within rounding error of a tie gives two codes, and what follows is
computed for both; everywhere else the intervals stay a few units in the last place wide. This is
what a rewrite promises (`ties`, `ulp`), carried through a whole graph: a result outside of its
interval is no rounding.

Independent of the code under test: elementwise arithmetic, quantizers and normalizations are
written out here in f64; data movement, windows and products use the op table's rows on f64, which
tests/ir holds against ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
from laws.boxes import EPS, F64, Box, exactly, hull
from laws.intervals_normalization import batch_norm, group_norm, layer_norm, lrn, resize, softmax

from fqfuse.ir.graph import Graph
from fqfuse.ir.node import Node
from fqfuse.ir.ops.spec import Trait
from fqfuse.ir.types import DType, Quantization


def run_boxes(
    graph: Graph,
    feeds: Mapping[str, npt.ArrayLike],
    ulps: float = 4.0,
    polynomials: float = 0.0,
    largest_code: float = 0.0,
) -> dict[str, Box]:
    """The interval of every value of a graph.

    `ulps`: how many roundings each operation is granted, in units of 2^-24 of its largest operand
    or intermediate. `polynomials`: what a library that approximates exp, log, tanh and the like may
    err besides, absolute below 1 and relative above.

    `largest_code`: a decoded value is granted roundings of at least so large a code. (q - z)*s is
    q*s - z*s to a primitive that has a bias
    but no zero point, and s8 codes are u8 codes with 128 more: the largest intermediate of a
    rewrite may be that of any code.
    """
    run = Run(graph, ulps, polynomials, largest_code)
    for name, data in graph.constants.items():
        if data.dtype.kind in "fiub":
            run.boxes[name] = exactly(data)
    for name, data in feeds.items():
        run.boxes[name] = exactly(data)
    with np.errstate(over="ignore", invalid="ignore"):  # values beyond f32 are infinite, or any
        for node in graph.nodes():
            run.node(node)
    return run.boxes


class Run:
    unseen = 2e-7
    """What a function that is bounded, or about x, may err in any case."""

    def __init__(self, graph: Graph, ulps: float, polynomials: float, largest_code: float) -> None:
        self.largest_code = largest_code
        self.graph, self.eps, self.polynomials = graph, ulps * EPS, polynomials
        self.boxes: dict[str, Box] = {}

    def node(self, node: Node) -> None:
        handler = _HANDLERS.get(node.op)
        if handler is not None:
            self.boxes[node.output] = handler(self, node)
        elif node.op in _INCREASING or node.has(Trait.LAYOUT_ONLY) or node.op in _EXACT:
            for value, box in zip(node.outputs, self.increasing(node), strict=True):
                self.boxes[value] = box
        elif node.op in _SLOPES:
            slope, factor = _SLOPES[node.op]
            self.boxes[node.output] = self.lipschitz(
                node, slope * max(1.0, abs(node.attr(factor, float)) if factor else 1.0)
            )
        else:
            raise NotImplementedError(f"no interval meaning of {node.op}")
        if self.polynomials and node.op in _APPROXIMATED:
            box = self.boxes[node.output]
            self.boxes[node.output] = box.widened(self.polynomials * np.maximum(box.magnitude, 1.0))
        for value in filter(None, node.outputs):
            if value in self.boxes and self.graph.type(value).dtype.is_float:
                self.boxes[value] = self.boxes[value].in_f32()

    def operand(self, node: Node, index: int) -> Box:
        return self.boxes[node.inputs[index]]

    def row(self, node: Node, arrays: list[F64 | None]) -> list[F64]:
        """The op table's own evaluation: floats in f64, integers in their type."""
        cast: list[np.ndarray | None] = []
        for value, array in zip(node.inputs, arrays, strict=True):
            kind = self.graph.type(value).dtype if value else DType.F32
            cast.append(
                None if array is None else array.astype(np.float64 if kind.is_float else kind.numpy)
            )
        assert node.spec.evaluate is not None
        with np.errstate(all="ignore"):
            return [np.asarray(found, np.float64) for found in node.spec.evaluate(cast, node.attrs)]

    def increasing(self, node: Node) -> list[Box]:
        """An operation that is non-decreasing in every (computed) input; rounding as of a sum of
        its operands.
        """
        low = self.row(node, [self.boxes[v].low if v else None for v in node.inputs])
        high = self.row(node, [self.boxes[v].high if v else None for v in node.inputs])
        boxes = [Box(a, b) for a, b in zip(low, high, strict=True)]
        if node.op not in _INCREASING:
            return boxes
        error = _INCREASING[node.op]
        if not error:
            return [box.widened(self.eps * self.grid(node)) for box in boxes]
        scale = self._scale(node, boxes[0])
        return [box.widened(self.eps * error * scale).in_f32(scale) for box in boxes]

    def grid(self, node: Node) -> npt.ArrayLike:
        """For an operation that compares its operands: the largest magnitude on the grid of the
        codes among them, 0 without codes.

        max(x, s*(q - z)) may be computed as max(x/s + z, q)*s - z*s, on the codes as they are
        stored.
        """
        found = 0.0
        for value in node.inputs if node.op in _COMPARING else ():
            maker = self.graph.producer(value)
            if maker is not None and maker.op == "Dequantize":
                quant = maker.attr("quant", Quantization)
                scale, zero = quant.scales.astype(np.float64), quant.zero_points.astype(np.float64)
                codes = np.abs(np.asarray(self.graph.type(maker.inputs[0]).dtype.range)).max()
                found = max(found, float(((codes + np.abs(zero)) * np.abs(scale)).max()))
        return found

    def decoding(self, _value: str, codes: Box, scale: F64, zero: F64) -> npt.ArrayLike:
        """The magnitude that rounding errors of a value decoded from codes are relative to."""
        return np.maximum(codes.magnitude + np.abs(zero), self.largest_code) * np.abs(scale)

    def stretched(self, _value: str, box: Box, low: F64, high: F64) -> npt.ArrayLike:
        """The same of a FakeQuantize's results, whose output range is `low` to `high`."""
        return np.maximum(np.maximum(np.abs(low), np.abs(high)), box.magnitude)

    def _scale(self, node: Node, box: Box) -> npt.ArrayLike:
        """The magnitude that rounding errors are relative to."""
        floats = [
            self.boxes[v].magnitude for v in node.inputs if v and self.graph.type(v).dtype.is_float
        ]
        if node.has(Trait.ELEMENTWISE):
            found = box.magnitude
            if node.op in ("Add", "Sub", "Sum", "Mean"):
                for operand in floats:
                    found = np.maximum(found, operand)
            return found
        return max((float(operand.max(initial=0)) for operand in floats), default=0.0) * _terms(
            node, self
        )

    def lipschitz(self, node: Node, constant: float) -> Box:
        x = self.operand(node, 0)
        rest = [self.boxes[v].low for v in node.inputs[1:]]
        a, b = self.row(node, [x.low, *rest])[0], self.row(node, [x.high, *rest])[0]
        spread = constant * (x.high - x.low)
        box = Box(np.minimum(a, b) - spread, np.maximum(a, b) + spread)
        # Polynomials and libm differ by a few units in the last place of the largest intermediate,
        # which is about x.
        error = 8 * self.eps * np.maximum(x.magnitude, box.magnitude)
        return box.widened(error + self.unseen)


def _terms(node: Node, run: Run) -> float:
    """How many terms a reduction adds."""
    out, inner = run.graph.type(node.output).shape, run.graph.type(node.inputs[0]).shape
    if node.op == "ReduceSum" and inner is not None and out is not None:
        sizes = [d for d in inner if isinstance(d, int)]
        return float(np.prod(sizes))
    return 1.0


# -- operations that have no direction -------------------------------------------------------------


def _sub(run: Run, node: Node) -> Box:
    a, b = run.operand(node, 0), run.operand(node, 1)
    return Box(a.low - b.high, a.high - b.low).widened(
        run.eps * np.maximum(a.magnitude, b.magnitude)
    )


def _mul(run: Run, node: Node) -> Box:
    a, b = run.operand(node, 0), run.operand(node, 1)
    box = hull(a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high)
    return box.widened(run.eps * box.magnitude)


def _div(run: Run, node: Node) -> Box:
    a, b = run.operand(node, 0), run.operand(node, 1)
    assert not ((b.low <= 0) & (b.high >= 0)).any(), "an interval divided by one around 0"
    box = hull(a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high)
    return box.widened(run.eps * box.magnitude)


def _compare(run: Run, node: Node) -> Box:
    """A comparison: certain where the operands are further apart than rounding."""
    a, b = run.operand(node, 0), run.operand(node, 1)
    if node.op.startswith("Less"):
        a, b = b, a
    slack = run.eps * np.maximum(np.maximum(a.magnitude, b.magnitude), run.grid(node))
    never = (a.low > b.high + slack) | (b.low > a.high + slack)
    if node.op == "Equal":
        always = (a.low == a.high) & (b.low == b.high) & (a.low == b.low) & (slack == 0)
        return Box(1.0 * always, 1.0 * ~never)
    return Box(1.0 * (a.low > b.high + slack), 1.0 * (a.high + slack >= b.low))


def _neg(run: Run, node: Node) -> Box:
    x = run.operand(node, 0)
    return Box(-x.high, -x.low)


def _abs(run: Run, node: Node) -> Box:
    return run.operand(node, 0).absolute()


def _pow(run: Run, node: Node) -> Box:
    x, power = run.operand(node, 0), run.operand(node, 1)
    exponent = float(power.low.reshape(-1)[0])
    assert power.low.size == 1, "one exponent"
    if exponent == 2:
        box = _abs(run, node)
        box = Box(box.low**2, box.high**2)
    else:
        # NaN where a value outgrew f32
        assert (exponent > 0 and exponent % 2 == 1) or not (x.low <= 0).any(), "a monotone power"
        box = hull(x.low**exponent, x.high**exponent)
    return box.widened(8 * run.eps * box.magnitude)


def _product(run: Run, node: Node) -> Box:
    """Conv, ConvTranspose, MatMul, Gemm: centre and radius; f32 accumulation of K terms errs by at
    most (K + 2) * eps * |x|*|w|.
    """
    a, b = run.operand(node, 0), run.operand(node, 1)
    bias = run.operand(node, 2) if len(node.inputs) > 2 and node.inputs[2] else None
    zero = None if bias is None else np.zeros_like(bias.low)
    rest: list[F64 | None] = [zero] * (len(node.inputs) - 2)

    def times(left: F64, right: F64) -> F64:
        return run.row(node, [left, right, *rest])[0]

    # alpha may be negative; then |alpha| is what a radius is multiplied with
    plain = node.op != "Gemm"
    sign = 1.0 if plain else float(np.sign(node.attr("alpha", float))) or 1.0
    middle = times(a.middle, b.middle)
    radius = sign * (
        times(np.abs(a.middle), b.radius)
        + times(a.radius, np.abs(b.middle))
        + times(a.radius, b.radius)
    )
    size = sign * times(a.magnitude, b.magnitude)
    box = Box(middle - radius, middle + radius)
    error = (_inner(run, node) + 2) * EPS * size
    if bias is None:
        return box.widened(error).in_f32(size)
    if plain:
        shape = (1, -1, *[1] * (middle.ndim - 2))
        low, high = bias.low.reshape(shape), bias.high.reshape(shape)
    else:
        ends = sorted(
            (bias.low * node.attr("beta", float), bias.high * node.attr("beta", float)),
            key=lambda end: float(end.sum()),
        )
        low, high = ends
    total = Box(box.low + low, box.high + high)
    largest = np.maximum(size, np.maximum(np.abs(low), np.abs(high)))
    return total.widened(error + run.eps * largest).in_f32(largest)


def _inner(run: Run, node: Node) -> int:
    shape = run.boxes[node.inputs[1]].low.shape
    if node.op == "Conv":
        return int(np.prod(shape[1:]))
    if node.op == "ConvTranspose":
        return int(np.prod((shape[0], *shape[2:])))
    return max(shape)


# -- quantizers ------------------------------------------------------------------------------------


def _shaped(quant: Quantization, rank: int) -> tuple[F64, F64]:
    scale, zero = quant.shaped(rank)
    return scale.astype(np.float64), zero.astype(np.float64)


def _quantize(run: Run, node: Node) -> Box:
    """clip(round(x / s + z), lo, hi), in either order of round and + z: the widening covers both
    sides of every tie.
    """
    x = run.operand(node, 0)
    scale, zero = _shaped(node.attr("quant", Quantization), x.low.ndim)
    box = hull(x.low / scale + zero, x.high / scale + zero)
    # s8 codes may be stored as u8, 128 added in front of the rounding
    moved = 128 * (node.attrs["dtype"] is DType.S8)
    box = box.widened(run.eps * (x.magnitude / np.abs(scale) + np.abs(zero) + moved + 1))
    return _codes(box, node.attr("lo", int), node.attr("hi", int))


def _codes(box: Box, low: float, high: float) -> Box:
    return Box(np.clip(np.rint(box.low), low, high), np.clip(np.rint(box.high), low, high))


def _dequantize(run: Run, node: Node) -> Box:
    codes = run.operand(node, 0)
    scale, zero = _shaped(node.attr("quant", Quantization), codes.low.ndim)
    box = hull((codes.low - zero) * scale, (codes.high - zero) * scale)
    return box.widened(run.eps * run.decoding(node.output, codes, scale, zero))


def _run_time_dequantize(run: Run, node: Node) -> Box:
    codes, scale, axis = run.operand(node, 0), run.operand(node, 1), node.attrs["axis"]
    shape = [-1 if index == axis else 1 for index in range(codes.low.ndim)]
    factors = [end.reshape(shape) for end in (scale.low, scale.high)]
    zero = run.operand(node, 2).low.reshape(shape) if node.operand(2) else 0.0
    ends = [end - zero for end in (codes.low, codes.high)]  # a zero point is an exact code
    box = hull(*(end * factor for end in ends for factor in factors))
    largest = np.maximum(*map(np.abs, factors)) * 255
    return box.widened(run.eps * np.maximum(box.magnitude, largest))


def _integers(run: Run, node: Node) -> Box:
    """A product of exact codes."""
    boxes = [run.operand(node, index) if value else None for index, value in enumerate(node.inputs)]
    assert all(box is None or (box.low == box.high).all() for box in boxes), "codes next to a tie"
    return exactly(run.row(node, [None if box is None else box.low for box in boxes])[0])


def _fake_quantize(run: Run, node: Node) -> Box:
    x = run.operand(node, 0)
    il, ih, ol, oh = (run.operand(node, i).low for i in range(1, 5))
    levels = node.attr("levels", int)
    slack = run.eps * np.maximum(x.magnitude, np.maximum(np.abs(il), np.abs(ih)))
    corners = []
    with np.errstate(all="ignore"):
        for end, error in ((x.low, -slack), (x.high, slack)):
            at = end + error
            grid = np.rint((at - il) / (ih - il) * (levels - 1))
            inside = np.clip(grid, 0, levels - 1) / (levels - 1) * (oh - ol) + ol
            inside = np.where(at <= np.minimum(il, ih), ol, inside)
            corners.append(np.where(at > np.maximum(il, ih), oh, inside))
    box = hull(*corners)
    # An inverted range falls between its bounds, and jumps at them: there it takes any value. The
    # composer's form of it tells the sides of a bound apart at a distance of some ten roundings.
    wide = 10 * slack
    jumps = (il > ih) & ~(
        (x.low - wide > il) | (x.high + wide <= ih) | ((x.low - wide > ih) & (x.high + wide <= il))
    )
    ends = hull(*np.broadcast_arrays(ol + 0 * x.low, oh + 0 * x.low))
    box = Box(np.where(jumps, ends.low, box.low), np.where(jumps, ends.high, box.high))
    return box.widened(run.eps * run.stretched(node.output, box, ol, oh))


def _lookup(run: Run, node: Node) -> Box:
    codes, table = run.operand(node, 0), run.operand(node, 1).low
    low, high = table[codes.low.astype(np.int64) & 255], table[codes.low.astype(np.int64) & 255]
    for step in range(1, int((codes.high - codes.low).max(initial=0)) + 1):
        at = np.minimum(codes.low + step, codes.high).astype(np.int64) & 255
        low, high = np.minimum(low, table[at]), np.maximum(high, table[at])
    return Box(low, high)


def _dequantize_blocks(run: Run, node: Node) -> Box:
    """Codes in blocks are constants, or slices of them: exact."""
    inputs = [
        run.operand(node, index).low.astype(run.graph.type(value).dtype.numpy)
        for index, value in enumerate(node.inputs)
    ]
    assert node.spec.evaluate is not None
    (decoded,) = node.spec.evaluate(inputs, node.attrs)
    return Box(decoded.astype(np.float64), decoded.astype(np.float64))


def _cast(run: Run, node: Node) -> Box:
    x, wanted = run.operand(node, 0), node.attr("to", DType)
    if wanted.is_float:
        return x
    cast = Box(np.trunc(x.low), np.trunc(x.high))
    if (x.low != x.high).any():
        low, high = wanted.range
        assert low <= cast.low.min() <= cast.high.max() <= high, "a cast that may wrap around"
    return cast


def _shape(run: Run, node: Node) -> Box:
    shape = run.operand(node, 0).low.shape
    end = node.attrs["end"]
    return exactly(
        np.asarray(shape[node.attr("start", int) : None if end is None else node.attr("end", int)])
    )


def _prelu(run: Run, node: Node) -> Box:
    return run.lipschitz(node, max(1.0, float(np.abs(run.operand(node, 1).low).max())))


_Handler = Callable[[Run, Node], Box]

_HANDLERS: dict[str, _Handler] = {
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    **dict.fromkeys(("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"), _compare),
    "Neg": _neg,
    "Abs": _abs,
    "Pow": _pow,
    "PRelu": _prelu,
    "Conv": _product,
    "ConvTranspose": _product,
    "MatMul": _product,
    "Gemm": _product,
    "MatMulInteger": _integers,
    "ConvInteger": _integers,
    "BatchNormalization": batch_norm,
    "Softmax": softmax,
    "LayerNormalization": layer_norm,
    "GroupNormalization": group_norm,
    "InstanceNormalization": group_norm,
    "LRN": lrn,
    "Resize": resize,
    "Quantize": _quantize,
    "Dequantize": _dequantize,
    "DequantizeBlocks": _dequantize_blocks,
    "RunTimeDequantize": _run_time_dequantize,
    "FakeQuantize": _fake_quantize,
    "Lookup": _lookup,
    "Cast": _cast,
    "Shape": _shape,
}

_INCREASING: dict[str, float] = {
    **dict.fromkeys(
        (
            "Relu",
            "Max",
            "Min",
            "Clip",
            "MaxPool",
            "GlobalMaxPool",
            "ReduceMax",
            "ReduceMin",
            "Concat",
            "Pad",
            "Round",
            "And",
            "Or",
            "Trilu",
            "ConstantOfShape",
        ),
        0.0,
    ),
    "Where": 0.0,
    **dict.fromkeys(("Add", "Sum"), 1.0),
    **dict.fromkeys(
        ("Mean", "AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum", "Sqrt"), 4.0
    ),
    **dict.fromkeys(("Exp", "Log"), 16.0),
}
"""Non-decreasing in every computed input -> how many roundings of the largest operand it is
granted.
"""

_COMPARING = frozenset({"Max", "Min", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"})

_EXACT = frozenset({"Identity", "FakeQuantizeGrid"})

_SLOPES: dict[str, tuple[float, str]] = {
    **dict.fromkeys(
        ("Sigmoid", "Tanh", "Softplus", "HardSigmoid", "Softsign", "Cos", "Sin"), (1.0, "")
    ),
    "Erf": (1.13, ""),
    "Gelu": (1.13, ""),
    "Mish": (1.1, ""),
    "HardSwish": (1.5, ""),
    "Swish": (1.1, "alpha"),
    "LeakyRelu": (1.0, "alpha"),
    "Elu": (1.0, "alpha"),
}
"""A bound of the function's slope: a number, times the attribute of that name where it is larger
than 1.
"""

_APPROXIMATED = frozenset(
    {"Exp", "Log", "Sigmoid", "Tanh", "Softplus", "Erf", "Gelu", "Mish", "Swish", "Elu", "Pow"}
)
"""What libraries compute by polynomials."""
