"""Dynamic quantizers written out as arithmetic, as torchao exports them: recognized by their formula, however it is spelled."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from support.onnx_cases import compare, model, node, ops, random

import fqfuse
from fqfuse.frontend import graph_from_onnx
from fqfuse.report.summary import summary_of

X = random([2, 3, 8], scale=3)
OTHER_TYPES = {np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8, np.int32: TensorProto.INT32}


class Written:
    """Nodes and constants of a model that quantizes x."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, object] = {}

    def op(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(node(op, inputs, [name], name=name, **attributes))
        return name

    def number(self, data: object, dtype: type = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(data, dtype)
        return name


def quantizer(
    shape,
    *,
    rows=True,
    symmetric=False,
    codes=np.int8,
    between=(TensorProto.INT8, TensorProto.FLOAT),
    zero_between=True,
    reciprocal=True,
    kept=False,
    swapped=False,
    rounded="Round",
    bounds=None,
):
    """The quantizer of x in one spelling: its nodes, and the name of what it decodes."""
    made = Written()
    low, high = bounds or ((-128, 127) if codes is np.int8 else (0, 255))
    axes = [made.number([len(shape) - 1], np.int64)] if rows else []

    def reduced(op: str, value: str) -> str:
        return made.op(op, value, *axes, keepdims=int(kept))

    def beside(value: str) -> str:
        if kept or not rows:
            return value
        return made.op("Reshape", value, made.number([*shape[:-1], 1], np.int64))

    tiny = made.number(1e-30)
    lowest, highest = made.number(low), made.number(high)
    zero = real = ""
    if symmetric:
        most = reduced("ReduceMax", made.op("Abs", "x"))
        scale = made.op("Clip", made.op("Div", most, made.number(high)), tiny)
    else:
        least = made.op("Min", reduced("ReduceMin", "x"), made.number(0))
        most = made.op("Max", reduced("ReduceMax", "x"), made.number(0))
        scale = made.op("Div", made.op("Sub", most, least), made.number(high - low))
        scale = made.op("Clip", scale, tiny)
        shift = made.op("Round", made.op("Div", least, scale))
        zero = made.op("Clip", made.op("Sub", lowest, shift), lowest, highest)
        zero = beside(made.op("Cast", zero, to=OTHER_TYPES[codes]) if zero_between else zero)
        real = made.op("Cast", zero, to=TensorProto.FLOAT) if zero_between else zero
    scale = beside(scale)
    value = (
        made.op("Mul", "x", made.op("Reciprocal", scale))
        if reciprocal
        else made.op("Div", "x", scale)
    )
    value = made.op(rounded, value)
    value = made.op("Add", *((real, value) if swapped else (value, real))) if real else value
    value = made.op("Clip", value, lowest, highest)
    for kind in between:
        value = made.op("Cast", value, to=kind)
    value = made.op("Sub", value, real) if real else value
    return made, made.op("Mul", *((scale, value) if swapped else (value, scale)))


def proto_of(made: Written, shape, *, output: str) -> onnx.ModelProto:
    constants = made.constants
    return model(made.nodes, inputs={"x": shape}, outputs=(output,), constants=constants, opset=20)


def test_every_spelling_is_recognized_and_gives_the_same_bits():
    rng = np.random.default_rng(0)
    casts = (
        (TensorProto.INT8, TensorProto.FLOAT),
        (),
        (TensorProto.INT32, TensorProto.FLOAT),
        (TensorProto.INT64, TensorProto.INT8, TensorProto.FLOAT),
    )
    for trial in range(24):
        shape = [[2, 3, 8][i] for i in range(rng.integers(3))] + [8]
        shape = [1 if i == 0 and len(shape) == 3 else size for i, size in enumerate(shape)]
        codes = np.uint8 if trial % 5 == 4 else np.int8
        between = casts[rng.integers(len(casts))] if codes is np.int8 else ()
        options = {
            name: bool(rng.integers(2))
            for name in ("rows", "reciprocal", "kept", "swapped", "zero_between")
        }
        symmetric = codes is np.int8 and bool(rng.integers(2))
        made, decoded = quantizer(
            shape, codes=codes, between=between, symmetric=symmetric, **options
        )
        x = (rng.standard_normal(shape) * 3).astype(np.float32)
        graph = compare(proto_of(made, shape, output=decoded), {"x": x})
        assert {"Quantize", "RunTimeDequantize"} <= set(ops(graph)), (shape, options)
        (name,) = graph.quantizers
        assert name == decoded


@pytest.mark.parametrize(
    "options",
    [
        {"rounded": "Identity"},  # no whole numbers
        {"bounds": (-300, 300), "between": (TensorProto.INT32, TensorProto.FLOAT)},
        {"between": (TensorProto.UINT8, TensorProto.FLOAT)},  # which holds no -1
        {"between": (TensorProto.BOOL, TensorProto.FLOAT)},
    ],
)
def test_what_is_no_quantizer_stays(options):
    made, decoded = quantizer([3, 8], zero_between=False, **options)
    graph = graph_from_onnx(proto_of(made, [3, 8], output=decoded))
    assert not {"Quantize", "RunTimeDequantize"} & set(ops(graph))


def test_scales_along_two_axes_stay():
    made, decoded = quantizer([2, 3, 8])
    graph = compare(proto_of(made, [2, 3, 8], output=decoded), {"x": X})
    assert "RunTimeDequantize" not in ops(graph)


def test_a_product_of_such_codes_runs_in_int8():
    made, decoded = quantizer([6, 8], rows=False)
    weights = made.number(np.random.default_rng(1).integers(-127, 128, (8, 4)), np.int8)
    real = made.op("DequantizeLinear", weights, made.number([0.1, 0.2, 0.3, 0.4]), axis=1)
    made.op("MatMul", decoded, real)
    plan = fqfuse.compile(proto_of(made, [6, 8], output=made.nodes[-1].output[0]))
    fates = {(f.quantizer, f.half.value): f.fate.value for f in plan.fate_records}
    assert fates[decoded, "dequantize"] == "source_scale"
    assert summary_of(plan).dynamic == 1


def test_the_findings_of_weights_in_blocks_are_true():
    """torchao's int8 dynamic activations beside weights in groups: the model has a quantizer in front of each product."""
    made, decoded = quantizer([64, 64])
    weights = made.number(np.random.default_rng(1).integers(-8, 8, (64, 2, 32)), np.int8)
    wide = made.op("Cast", weights, to=TensorProto.FLOAT)
    scales = made.number(np.full((64, 2, 1), 0.1))
    whole = made.op("Mul", wide, scales)
    flat = made.op("Reshape", whole, made.number([64, 64], np.int64))
    made.op("MatMul", decoded, made.op("Transpose", flat, perm=[1, 0]))
    plan = fqfuse.compile(proto_of(made, [64, 64], output=made.nodes[-1].output[0]))
    told = {found["code"]: found for found in plan.findings()}
    assert told["weights-only"]["change"].startswith("let weights have one scale for each output")
    assert len(told["dynamic-quantizer"]["layers"]) == 1
    assert "open-sizes" not in told
