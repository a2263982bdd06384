"""Hypothesis strategies for graphs and plans with everything that a text form or a plan file could
lose.
"""

from __future__ import annotations

import math
import struct

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fqfuse.ir.decision import (
    Alternative,
    Decision,
    DequantizeFate,
    Fate,
    Half,
    Outcome,
    QuantizeFate,
    Quantizer,
)
from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType, Quantization, TensorType
from fqfuse.plan.attributes import (
    Binary,
    DepthwiseConv,
    Eltwise,
    Prelu,
    PrimitiveAttr,
    Scale,
    Sum,
    ZeroPoint,
)
from fqfuse.plan.types import Plan, Step

names = st.one_of(
    st.sampled_from(
        [
            "x",
            "/layer1/conv/Conv_output_0",
            "onnx::Conv_1",
            "a b",
            'quote"d',
            "back\\slash",
            "größe",
            "名前",
            "a.",
            "-",
            "%x",
            "_",
            "[]",
        ]
    ),
    st.sampled_from(
        [
            "in",
            "out",
            "const",
            "data",
            "from",
            "quantizer",
            "nan",
            "0",
            "a;b",
            "tab\t",
            "line\nbreak",
            "\u2028",
            "\x7f",
            "🦜",
            "0x1",
        ]
    ),
    st.text(min_size=1, max_size=8),
)
texts = st.one_of(
    st.just(""),
    st.text(max_size=12),
    st.sampled_from(["one reader", 'a "quoted" \\ word', "ü\n\t\u2029"]),
)
f32 = st.floats(width=32, allow_nan=False)
f64 = st.floats(allow_nan=False)
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
dims = st.one_of(
    st.integers(0, 3),
    st.sampled_from(["N", "batch size", "floor((H-1)/2)+1", "2*N", "", "7", "-1", "*", "a,b"]),
)
dtypes = st.sampled_from(DType)


@st.composite
def quantizations(draw: st.DrawFn, numbers: st.SearchStrategy[float] = f64) -> Quantization:
    """Per tensor, or along an axis; also with values that are no f32."""
    axis = draw(st.none() | st.integers(0, 3))
    count = 1 if axis is None else draw(st.integers(1, 12))
    values = st.lists(numbers, min_size=count, max_size=count).map(tuple)
    return Quantization(draw(values), draw(values), axis)


@st.composite
def types(draw: st.DrawFn) -> TensorType:
    """Any type, sensible or not: the text form holds what the verifier refuses."""
    shape = draw(st.none() | st.lists(dims, max_size=4).map(tuple))
    return TensorType(draw(dtypes), shape, draw(st.none() | quantizations()))


attrs = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        f32,
        f64,
        st.text(max_size=8),
        st.binary(max_size=80),
        dtypes,
        quantizations(),
        types(),
    ),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)


_CARRIED = [
    DType.F32,
    DType.F64,
    DType.F16,
    DType.S8,
    DType.U8,
    DType.S16,
    DType.U16,
    DType.S32,
    DType.U32,
    DType.S64,
    DType.U64,
    DType.BOOL,
]


@st.composite
def arrays(draw: st.DrawFn, *, byte_strings: bool = True) -> np.ndarray:
    """Arrays of every element type; floats from random bits, so that NaNs have payloads."""
    dtype = draw(st.sampled_from([*_CARRIED, DType.STRING]))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    if dtype is DType.STRING:
        data = np.empty(math.prod(shape), object)
        element = (
            st.text(max_size=4) | st.binary(max_size=4) if byte_strings else st.text(max_size=4)
        )
        data[:] = draw(st.lists(element, min_size=data.size, max_size=data.size))
        return data.reshape(shape)
    if draw(st.booleans()) and dtype is not DType.BOOL:
        return np.full(shape, draw(st.integers(0, 100)), dtype.numpy)
    if dtype.is_float:
        bits = draw(hnp.arrays(f"u{dtype.numpy.itemsize}", shape))
        return bits.view(dtype.numpy)
    return draw(hnp.arrays(dtype.numpy, shape))


def distinct(count: int) -> st.SearchStrategy[list[str]]:
    """So many different names: a few odd ones in front, since drawing and shrinking dozens takes
    long, then plain ones.
    """
    odd = st.lists(
        names.filter(lambda name: not name.startswith("plain")), max_size=min(count, 4), unique=True
    )
    return odd.map(lambda found: [*found, *(f"plain{i}" for i in range(count - len(found)))])


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """Any decision."""
    weighed = st.builds(Alternative, names, st.floats(0, 2**10, width=32), texts)
    rest = (*(draw(texts) for _ in range(4)), tuple(draw(st.lists(weighed, max_size=3))))
    numbers = st.integers(0, 9)
    place = draw(st.none() | numbers), tuple(draw(st.lists(numbers, max_size=3)))
    return Decision(draw(names), draw(names), draw(st.sampled_from(Outcome)), *rest, *place)


@st.composite
def fates(draw: st.DrawFn) -> Fate:
    """Any fate whose kind belongs to its half."""
    half = draw(st.sampled_from(Half))
    fate = draw(st.sampled_from(QuantizeFate if half is Half.QUANTIZE else DequantizeFate))
    return Fate(
        draw(names), half, fate, draw(texts), draw(texts), draw(st.none() | st.integers(0, 99))
    )


@st.composite
def quantizers(draw: st.DrawFn) -> dict[str, Quantizer]:
    """A few quantizers by name."""
    found = draw(st.lists(st.builds(Quantizer, names, names, names), max_size=3))
    return {quantizer.name: quantizer for quantizer in found}


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs over ops with a fixed meaning, foreign ops of any type, absent and repeated operands,
    many outputs, and odd names.
    """
    graph = Graph(draw(texts))
    pool = iter(draw(distinct(32)))
    node_names = iter(draw(distinct(10)))  # nodes and values may share names
    plain = TensorType(DType.F32, (2, 3))
    for _ in range(draw(st.integers(1, 2))):
        graph.add_input(next(pool), plain)
    graph.add_input(next(pool), draw(types()))
    for _ in range(draw(st.integers(0, 3))):
        data = draw(arrays())
        graph.add_constant(next(pool), data, quant=draw(st.none() | quantizations()))
    for _ in range(draw(st.integers(0, 8))):
        _add_node(draw, graph, next(node_names), pool, plain)
    graph.quantizers = draw(quantizers())
    graph.fates = draw(st.lists(fates(), max_size=2))
    for decision in draw(st.lists(decisions(), max_size=2)):
        graph.decide(decision)
    graph.set_outputs(draw(st.lists(st.sampled_from(list(graph.values)), max_size=3)))
    return graph


def _add_node(draw: st.DrawFn, graph: Graph, name: str, pool: object, plain: TensorType) -> None:
    arithmetic = [value for value, type_ in graph.values.items() if type_ == plain]
    operand = st.sampled_from(arithmetic)
    kind = draw(st.sampled_from(["Relu", "Add", "Softmax", "Clip", "Split", "Quantize", "Onnx"]))
    given = {
        "name": name,
        "origin": draw(st.just([name]) | st.lists(names, max_size=3)),
        "quantizer": draw(st.lists(names, max_size=2)),
    }
    given["after_all"] = draw(st.booleans())
    output = next(pool)  # type: ignore[call-overload]
    if kind == "Onnx":
        inputs = draw(st.lists(st.sampled_from([*graph.values, ""]), max_size=3))
        outputs = draw(st.sampled_from([[output], ["", output], [output, next(pool)]]))  # type: ignore[call-overload]
        parameters = {
            "op_type": draw(texts),
            "opset": draw(st.integers()),
            "proto": draw(st.binary(max_size=200)),
        }
        graph.add(
            "Onnx",
            inputs,
            parameters,
            outputs=outputs,
            types=[draw(types()) for _ in outputs],
            **given,
        )
    elif kind == "Split":
        outputs = [output, next(pool), next(pool)]  # type: ignore[call-overload]
        graph.add("Split", [draw(operand)], {"axis": 1, "num_outputs": 3}, outputs=outputs, **given)
    elif kind == "Quantize":
        quant = Quantization.of(draw(st.floats(0.125, 9, width=32)), draw(st.integers(0, 255)))
        parameters = {"quant": quant, "dtype": DType.U8, "lo": 0, "hi": 255, "order": "zp_first"}
        graph.add("Quantize", [draw(operand)], parameters, outputs=[output], **given)
    else:
        first = draw(operand)
        inputs = {
            "Relu": [first],
            "Add": [first, draw(st.just(first) | operand)],
            "Softmax": [first],
            "Clip": [first, "", ""],
        }[kind]
        graph.add(
            kind,
            inputs,
            {"axis": draw(st.sampled_from([-1, 0, 1]))} if kind == "Softmax" else {},
            outputs=[output],
            **given,
        )


# -- plans of any content --------------------------------------------------------------------------

scales = st.builds(Scale, st.lists(f64, max_size=12).map(tuple), st.integers(0, 9))
zero_points = st.builds(
    ZeroPoint, st.lists(st.integers(), max_size=4).map(tuple), st.integers(0, 9)
)


def post_ops(operands: list[str], constants: list[str]) -> st.SearchStrategy[object]:
    """Post-ops of every kind over the given names."""
    anything, fixed = st.sampled_from([*operands, *constants]), st.sampled_from(constants)
    size = st.integers(-1, 9)
    return st.one_of(
        st.builds(Eltwise, names, f64, f64, f64),
        st.builds(Binary, names, anything, st.none() | scales),
        st.builds(Sum, anything, f64, st.integers(), st.none() | dtypes),
        st.builds(Prelu, fixed, size),
        st.builds(
            DepthwiseConv,
            fixed,
            st.just("") | fixed,
            size,
            size,
            size,
            dtypes,
            dtypes,
            scales,
            scales,
        ),
    )


@st.composite
def loose_plans(draw: st.DrawFn) -> Plan:
    """Plans of any content, most of them unsound: the text form of a plan must hold a broken one,
    too.
    """
    pool = draw(distinct(9))
    inputs, constants, written = pool[:2], pool[2:5], pool[5:]
    values = {value: draw(types()) for value in [*inputs, *written[1:]]}
    steps = []
    for index, name in enumerate(draw(distinct(draw(st.integers(0, 2))))):
        outputs = draw(
            st.sampled_from(
                [
                    (written[2 * index],),
                    ("", written[2 * index]),
                    (written[2 * index], written[2 * index + 1]),
                ]
            )
        )
        attr = PrimitiveAttr(
            draw(st.dictionaries(names, scales, max_size=2)),
            draw(st.dictionaries(names, zero_points, max_size=2)),
            tuple(draw(st.lists(post_ops(inputs, constants), max_size=4))),
            draw(st.none() | scales),
        )
        args = tuple(
            draw(st.lists(st.tuples(names, st.sampled_from([*inputs, *constants])), max_size=3))
        )
        primitive, op = draw(
            st.sampled_from(
                [
                    ("convolution", "Conv"),
                    ("onnx.Relu", "Relu"),
                    ("onnx.Loop", "Onnx"),
                    ("odd one", "Nothing"),
                ]
            )
        )
        known = st.sampled_from(["group", "strides", "op_type", "proto"])
        params = draw(st.dictionaries(names | known, attrs, max_size=3))
        steps.append(
            Step(
                name,
                primitive,
                op,
                args,
                outputs,
                params,
                attr,
                tuple(draw(st.lists(names, max_size=2))),
            )
        )
    return Plan(
        draw(texts),
        draw(names),
        tuple(inputs),
        tuple(draw(st.lists(st.sampled_from(pool), max_size=2))),
        values,
        dict.fromkeys(constants, draw(arrays())),
        tuple(steps),
        draw(quantizers()),
        tuple(draw(st.lists(fates(), max_size=2))),
        tuple(draw(st.lists(decisions(), max_size=2))),
        draw(st.dictionaries(names, attrs, max_size=2)),
    )


def exactly(value: object) -> object:
    """A key that tells apart what `==` does not: 1, 1.0 and True; 0.0 and -0.0."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, tuple):
        return tuple(map(exactly, value))
    return type(value), value
