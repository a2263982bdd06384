"""Seven bits in every form of a quantizer: the sums are proven exact on the old CPU, both CPUs give
the same bits, and the numbers stay those of the model, by ONNX Runtime's word where it runs the form.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.judge import ort_session
from support.screen_networks import NETWORKS

import fqfuse
from fqfuse.accuracy.measures import sqnr_of
from fqfuse.accuracy.remedy import Fixed, What, fixed, outcome_of
from fqfuse.accuracy.simulation import samples_for, subject_of
from fqfuse.errors import UnsupportedOp
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.machine import machine_from

DOMAINS = {"": 21, "com.microsoft": 1, "org.openvinotoolkit": 1, "qonnx.custom_op.general": 1}
X = [3, 16, 6, 6]

GOOD = 27.0
"""dB. A code that is halved moves by 0.7 of a step in the mean square, where the weights' is about 40:
35 dB, and 30 where one scale serves small and large channels. A scale that does not go along leaves 6,
a bias or a zero point less than 20."""


class Draft:
    """A model in the making."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.data: list[onnx.TensorProto] = []

    def constant(self, array: object) -> str:
        name = f"c{len(self.data)}"
        self.data.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, op: str, *inputs: str, out: str = "", domain: str = "", **attrs: object) -> str:
        out = out or f"{op}{len(self.nodes)}"
        node = helper.make_node(op, inputs, [out], name=f"n{len(self.nodes)}", domain=domain)
        node.attribute.extend(helper.make_attribute(k, v) for k, v in attrs.items())
        self.nodes.append(node)
        return out

    def source(self, dtype: type = np.uint8, value: str = "x") -> str:
        """Codes of the input, and their scale and zero point."""
        zero = self.constant(dtype(120 if dtype is np.uint8 else -8))
        self.scale, self.zero = self.constant(np.float32(0.03)), zero
        return self.op("QuantizeLinear", value, self.scale, zero)

    def read(self, dtype: type = np.uint8, value: str = "x") -> str:
        codes = self.source(dtype, value)
        return self.op("DequantizeLinear", codes, self.scale, self.zero)

    def weights(self, shape: tuple[int, ...]) -> np.ndarray:
        """Normal numbers, each output channel by a factor of its own."""
        found = self.rng.normal(0, 0.1, shape)
        return (found * self.rng.uniform(0.2, 3, (shape[0], *[1] * (len(shape) - 1)))).astype("f")

    def model(self, shape: list[int] = X, out: list[int] | None = None) -> onnx.ModelProto:
        x, y = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
            for name, dims in (("x", shape), ("y", out))
        )
        graph = helper.make_graph(self.nodes, "g", [x], [y], self.data)
        opsets = [helper.make_opsetid(name, version) for name, version in DOMAINS.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def coded(
    w: np.ndarray, axis: int | None, dtype: type = np.int8, zero: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, scales and zero points of weights; axis None: one scale."""
    others = tuple(i for i in range(w.ndim) if i != axis)
    top = np.abs(w).max() if axis is None else np.abs(w).max(axis=others)
    middle = 128 if dtype is np.uint8 else 0
    scale = (top / 127).astype(np.float32)
    wide = scale if axis is None else scale.reshape([-1 if i == axis else 1 for i in range(w.ndim)])
    codes = np.clip(
        np.rint(w / wide) + zero + middle, *map(int, (np.iinfo(dtype).min, np.iinfo(dtype).max))
    )
    zeros = np.full(scale.shape, zero + middle, dtype)
    return codes.astype(dtype), scale, zeros


CONV = (32, 16, 3, 3)
Form = Callable[[Draft, bool], onnx.ModelProto]


def decoded(dtype: type, zero: int) -> Form:
    """DequantizeLinear on constant codes."""

    def make(draft: Draft, channels: bool) -> onnx.ModelProto:
        axis = 0 if channels else None
        parts = map(draft.constant, coded(draft.weights(CONV), axis, dtype, zero))
        w = draft.op("DequantizeLinear", *parts, axis=0)
        draft.op("Conv", draft.read(), w, out="y")
        return draft.model()

    return make


def encoded(draft: Draft, channels: bool) -> onnx.ModelProto:
    """QuantizeLinear and DequantizeLinear of constant numbers."""
    w = draft.weights(CONV)
    _, scale, zero = coded(w, 0 if channels else None)
    parameters = draft.constant(scale), draft.constant(zero)
    codes = draft.op("QuantizeLinear", draft.constant(w), *parameters, axis=0)
    draft.op(
        "Conv", draft.read(), draft.op("DequantizeLinear", codes, *parameters, axis=0), out="y"
    )
    return draft.model()


def qlinear_conv(draft: Draft, channels: bool) -> onnx.ModelProto:
    codes, scale, zero = coded(draft.weights(CONV), 0 if channels else None)
    source = draft.source()
    bias = np.rint(draft.rng.normal(0, 3, 32) / (0.03 * scale)).astype(np.int32)
    out = draft.constant(np.float32(0.1)), draft.constant(np.uint8(128))
    own = map(draft.constant, (codes, scale, zero))
    args = (source, draft.scale, draft.zero, *own, *out, draft.constant(bias))
    draft.op("DequantizeLinear", draft.op("QLinearConv", *args), *out, out="y")
    return draft.model()


def qgemm(draft: Draft, channels: bool) -> onnx.ModelProto:
    codes, scale, zero = coded(draft.weights((24, 64)), 0 if channels else None)
    source = draft.source()
    bias = np.rint(draft.rng.normal(0, 3, 24) / (0.03 * scale)).astype(np.int32)
    own = map(draft.constant, (codes, scale, zero))
    args = (source, draft.scale, draft.zero, *own, draft.constant(bias))
    out = draft.constant(np.float32(0.1)), draft.constant(np.uint8(128))
    codes_out = draft.op("QGemm", *args, *out, domain="com.microsoft", transB=1)
    draft.op("DequantizeLinear", codes_out, *out, out="y")
    return draft.model([5, 64])


def qlinear_matmul(draft: Draft, channels: bool) -> onnx.ModelProto:
    codes, scale, zero = coded(draft.weights((24, 64)).T.copy(), 1 if channels else None)
    source = draft.source()
    out = draft.constant(np.float32(0.1)), draft.constant(np.uint8(128))
    own = map(draft.constant, (codes, scale, zero))
    codes_out = draft.op("QLinearMatMul", source, draft.scale, draft.zero, *own, *out)
    draft.op("DequantizeLinear", codes_out, *out, out="y")
    return draft.model([5, 64])


def matmul_integer(draft: Draft, channels: bool) -> onnx.ModelProto:
    """As quantize_dynamic writes it."""
    codes, scale, zero = coded(draft.weights((24, 64)).T.copy(), 1 if channels else None)
    source, step, shift = "codes", "step", "shift"
    node = helper.make_node("DynamicQuantizeLinear", ["x"], [source, step, shift], name="dynamic")
    draft.nodes.append(node)
    sums = draft.op("MatMulInteger", source, draft.constant(codes), shift, draft.constant(zero))
    factor = draft.op("Mul", step, draft.constant(scale))
    draft.op("Mul", draft.op("Cast", sums, to=TensorProto.FLOAT), factor, out="y")
    return draft.model([5, 64])


def cast_and_scale(draft: Draft, channels: bool) -> onnx.ModelProto:
    """Cast, Sub and Mul on constant codes."""
    w = draft.weights(CONV)
    codes, scale, _ = coded(w, 0 if channels else None, np.uint8, 5)
    wide = scale.reshape(-1, 1, 1, 1) if channels else scale
    number = draft.op("Cast", draft.constant(codes), to=TensorProto.FLOAT)
    shifted = draft.op("Sub", number, draft.constant(np.float32(133)))
    draft.op("Conv", draft.read(), draft.op("Mul", shifted, draft.constant(wide)), out="y")
    return draft.model()


def fake_quantize(levels: int, zero: int) -> Form:
    """FakeQuantize; `zero` is the level that stands for 0."""

    def make(draft: Draft, channels: bool) -> onnx.ModelProto:
        w = draft.weights(CONV)
        top = np.abs(w).max(axis=(1, 2, 3), keepdims=True) if channels else np.abs(w).max()
        low, high = (end * top / np.float32(127) for end in (-zero, levels - 1 - zero))
        ends = [draft.constant(np.asarray(end, "f")) for end in (low, high, low, high)]
        attrs = {"domain": "org.openvinotoolkit", "levels": levels}
        quantized = draft.op("FakeQuantize", draft.constant(w), *ends, **attrs)
        limits = [draft.constant(np.float32(end)) for end in (-3.6, 4.05)] * 2
        x = draft.op("FakeQuantize", "x", *limits, domain="org.openvinotoolkit", levels=256)
        draft.op("Conv", x, quantized, out="y")
        return draft.model()

    return make


def qonnx(draft: Draft, channels: bool) -> onnx.ModelProto:
    w = draft.weights(CONV)
    _, scale, _ = coded(w, 0 if channels else None)
    wide = scale.reshape(-1, 1, 1, 1) if channels else scale
    rest = draft.constant(np.float32(0)), draft.constant(np.float32(8))
    domain = "qonnx.custom_op.general"
    attrs = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
    quantized = draft.op(
        "Quant", draft.constant(w), draft.constant(wide), *rest, domain=domain, **attrs
    )
    draft.op("Conv", draft.read(), quantized, out="y")
    return draft.model()


def dynamic_lstm(dtype: type, zero: int) -> Form:
    """DynamicQuantizeLSTM in two directions."""

    def make(draft: Draft, channels: bool) -> onnx.ModelProto:
        directions, hidden, given = 2, 12, []
        for inputs in (16, hidden):
            w = draft.rng.normal(0, 0.3, (directions, inputs, 4 * hidden))
            w *= draft.rng.uniform(0.8, 1.25, (directions, 1, 4 * hidden))
            each = [coded(side, 1 if channels else None, dtype, zero) for side in w]
            given.append([draft.constant(np.stack(part)) for part in zip(*each, strict=True)])
        (w, *of_w), (r, *of_r) = given
        draft.op(
            "DynamicQuantizeLSTM",
            *("x", w, r, *[""] * 5, *of_w, *of_r),
            out="y",
            domain="com.microsoft",
            hidden_size=hidden,
            direction="bidirectional",
        )
        return draft.model([5, 3, 16])

    return make


def halved(kind: str) -> Form:
    """A depthwise convolution of s8 codes that a residual connection keeps signed."""

    def make(draft: Draft, channels: bool) -> onnx.ModelProto:
        w = draft.weights((16, 1, 3, 3))
        codes, scale, zero = coded(w, 0 if channels else None)
        x = draft.source(np.int8)
        x = draft.op("DequantizeLinear", x, draft.scale, draft.zero)
        parameters = draft.constant(scale), draft.constant(zero)
        if kind == "codes":
            read = draft.op("DequantizeLinear", draft.constant(codes), *parameters, axis=0)
        elif kind == "numbers":
            made = draft.op("QuantizeLinear", draft.constant(w), *parameters, axis=0)
            read = draft.op("DequantizeLinear", made, *parameters, axis=0)
        else:
            top = (127 * scale).reshape(-1, 1, 1, 1) if channels else 127 * scale
            ends = [draft.constant(np.asarray(end, "f")) for end in (-top, top)] * 2
            attrs = {"domain": "org.openvinotoolkit", "levels": 255}
            read = draft.op("FakeQuantize", draft.constant(w), *ends, **attrs)
        y = draft.op("Conv", x, read, group=16, pads=[1, 1, 1, 1])
        draft.op("Add", y, x, out="y")
        return draft.model()

    return make


FORMS: dict[str, Form] = {
    "dequantized s8": decoded(np.int8, 0),
    "dequantized s8, zero point": decoded(np.int8, 7),
    "dequantized u8": decoded(np.uint8, 0),
    "dequantized u8, zero point": decoded(np.uint8, -41),
    "quantized": encoded,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QGemm": qgemm,
    "MatMulInteger": matmul_integer,
    "DynamicQuantizeLSTM": dynamic_lstm(np.int8, 0),
    "DynamicQuantizeLSTM, u8": dynamic_lstm(np.uint8, 0),
    "DynamicQuantizeLSTM, u8, zero point": dynamic_lstm(np.uint8, -9),
    "Cast, Sub, Mul": cast_and_scale,
    "FakeQuantize, 255 levels": fake_quantize(255, 127),
    "FakeQuantize, 256 levels": fake_quantize(256, 128),
    "FakeQuantize, moved": fake_quantize(256, 90),
    "Quant": qonnx,
    "halved codes": halved("codes"),
    "halved numbers": halved("numbers"),
    "halved FakeQuantize": halved("fake"),
}
OURS = {"FakeQuantize", "Quant"}
"""Operators that ONNX Runtime has not."""


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """By ONNX Runtime without optimizations, else by the op table, unfused."""
    if {node.op_type for node in model.graph.node} & OURS:
        return fqfuse.InferenceSession(model, "numpy").run(None, {"x": x})[0]
    return ort_session(model).run(None, {"x": x})[0]


MACHINES = {
    "avx2": machine_from("flags\t\t: avx2\n", cores=2, clock=3.0),
    "avx512_core": machine_from("flags\t\t: avx512bw avx2\n", cores=2, clock=3.0),
}


def check_findings(model: onnx.ModelProto, isa: str) -> None:
    found = changed(model, isa)
    assert found is not None
    before, after = (
        {item.kind.code for item in verdict_of(plan, MACHINES[isa]).findings}
        for plan in (fqfuse.compile(model), found.plan)
    )
    assert "saturation-without-vnni" in before
    assert after <= before - {"saturation-without-vnni"}


def changed(model: onnx.ModelProto, isa: str) -> Fixed | None:
    """The model with 7 bits; None where it is exact as it is."""
    subject = subject_of(model, isa)
    if not subject.at_risk:
        return None
    before = model.SerializeToString()
    found = fixed(subject)
    assert model.SerializeToString() == before, "the caller's model is not touched"
    return found


@pytest.mark.parametrize("channels", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("isa", MACHINES)
@pytest.mark.parametrize("form", FORMS)
def test_the_file_has_no_finding_that_the_model_has_not(
    form: str, isa: str, channels: bool
) -> None:
    """Some channels have 7 bits then and others 8: no reason to ask for what they have, a scale of their own."""
    for seed in range(3):
        model = FORMS[form](Draft(np.random.default_rng([seed, channels])), channels)
        check_findings(model, isa)


@pytest.mark.parametrize("channels", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_weights(form: str, channels: bool) -> None:
    for seed in range(3):
        rng = np.random.default_rng([seed, channels])
        model = FORMS[form](Draft(rng), channels)
        found = changed(model, "avx2")
        assert found is not None, "its pairs may saturate, or its weights are odd"
        halves = {change.what for change in found.changes}
        assert halves == {What.EVEN if form.startswith("halved") else What.WEIGHTS}
        shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
        x = rng.uniform(-3.6, 4, shape).astype(np.float32)
        old, new = (run(each, x) for each in (model, found.model))
        assert sqnr_of(old, new) >= GOOD
        both = [
            fqfuse.InferenceSession(found.plan, "numpy", isa=isa).run(None, {"x": x})[0].tobytes()
            for isa in ("vnni", "avx2")
        ]
        assert both[0] == both[1]


def behind_moves(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each matrix of codes behind a Transpose and an Identity, as exporters write it."""
    moved = onnx.ModelProto.FromString(model.SerializeToString())
    graph = moved.graph
    for tensor in graph.initializer:
        data = numpy_helper.to_array(tensor)
        if data.dtype not in (np.int8, np.uint8) or data.ndim < 2:
            continue
        order = [*range(1, data.ndim), 0]
        name = tensor.name
        back = [int(place) for place in np.argsort(order)]
        tensor.CopyFrom(numpy_helper.from_array(data.transpose(order).copy(), f"{name}/stored"))
        same = helper.make_node("Identity", [tensor.name], [f"{name}/same"])
        graph.node.insert(0, helper.make_node("Transpose", [same.output[0]], [name], perm=back))
        graph.node.insert(0, same)
    return moved


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_weights_behind_moves(form: str) -> None:
    """The change is that of the same weights without them; nothing holds the old ones any more."""
    rng = np.random.default_rng(11)
    model = FORMS[form](Draft(rng), False)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = rng.uniform(-3.6, 4, shape).astype(np.float32)
    plain, moved = changed(model, "avx2"), changed(behind_moves(model), "avx2")
    assert plain is not None
    assert moved is not None
    assert run(moved.model, x).tobytes() == run(plain.model, x).tobytes()
    assert moved.model.ByteSize() < plain.model.ByteSize() + 500


def test_the_scale_of_the_source_is_multiplied_first() -> None:
    """As exporters write it that do not join the two scales."""
    draft = Draft(np.random.default_rng(12))
    weights = draft.weights((16, 24))
    names = codes, scale, zero = ["codes", "scale", "zero"]
    draft.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], names, name="dynamic"))
    data = draft.constant(np.clip(np.rint(weights / 0.004), -127, 127).astype(np.int8))
    summed = draft.op("MatMulInteger", codes, data, zero)
    sums = draft.op("Mul", draft.op("Cast", summed, to=TensorProto.FLOAT), scale)
    draft.op("Mul", sums, draft.constant(np.float32(0.004)), out="y")
    model = draft.model([5, 16], [5, 24])
    found = changed(model, "avx2")
    assert found is not None
    x = np.random.default_rng(13).uniform(-3, 3, (5, 16)).astype(np.float32)
    assert sqnr_of(*(run(each, x) for each in (model, found.model))) >= GOOD


@pytest.mark.parametrize("form", ["MatMulInteger", "DynamicQuantizeLSTM"])
def test_layers_that_share_weights(form: str) -> None:
    """Each has a quantizer of its own, and one constant is read by both."""
    draft = Draft(np.random.default_rng(9))
    model = FORMS[form](draft, False)
    copies = [onnx.NodeProto.FromString(each.SerializeToString()) for each in model.graph.node]
    renamed = {name: f"{name}2" for each in copies for name in each.output if name}
    for each in copies:
        each.name += "2"
        for names in (each.input, each.output):
            names[:] = [renamed.get(name, name) for name in names]
    model.graph.node.extend(copies)
    model.graph.output.append(helper.make_tensor_value_info("y2", TensorProto.FLOAT, None))
    found = changed(model, "avx2")
    assert found is not None
    layers = {layer for change in found.changes for layer in change.layers}
    assert len(layers) == 2
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = draft.rng.uniform(-3, 3, shape).astype(np.float32)
    both = [
        fqfuse.InferenceSession(found.plan, "numpy", isa=isa).run(None, {"x": x})
        for isa in ("vnni", "avx2")
    ]
    assert all(map(np.array_equal, *both))
    assert sqnr_of(run(model, x), run(found.model, x)) >= GOOD


@pytest.mark.parametrize(
    ("dtype", "zero"), [(np.int8, 10), (np.int8, 30), (np.uint8, 100), (np.uint8, 160)]
)
def test_asymmetric_weights_lose_one_bit_and_no_more(dtype: type, zero: int) -> None:
    """They become symmetric: the step grows as far as the farthest code needs, once."""
    draft = Draft(np.random.default_rng(zero))
    codes = draft.rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (32, 32)).astype(dtype)
    parts = (draft.constant(a) for a in (codes, np.float32(0.004), dtype(zero)))
    w = draft.op("DequantizeLinear", *parts)
    draft.op("MatMul", draft.read(), w, out="y")
    found = changed(draft.model([16, 32]), "avx2")
    assert found is not None
    assert [change.what for change in found.changes] == [What.WEIGHTS]
    data = {t.name: numpy_helper.to_array(t) for t in found.model.graph.initializer}
    (new,) = (array for array in data.values() if array.shape == (32, 32))
    scale = data[reading(found.model, new.shape).input[1]].item()
    reach = np.abs(codes.astype(int) - zero).max()
    assert scale == pytest.approx(0.004 * reach / 64, rel=1e-6)
    assert np.abs(new.astype(int) - (128 if dtype is np.uint8 else 0)).max() == 64
    assert reach / 64 < 2.6


def reading(model: onnx.ModelProto, shape: tuple[int, ...]) -> onnx.NodeProto:
    """The DequantizeLinear of the constant of a shape."""
    names = {t.name for t in model.graph.initializer if tuple(t.dims) == shape}
    (node,) = (
        node
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in names
    )
    return node


def test_weights_that_two_layers_share() -> None:
    """One deconvolution of u8 and one of s8, which would need even codes; the file has unsigned sources alone."""
    draft = Draft(np.random.default_rng(0))
    w = draft.rng.integers(-127, 128, (4, 4, 3, 3)).astype(np.int8)
    parts = (draft.constant(a) for a in (w, np.float32(0.004), np.int8(0)))
    w = draft.op("DequantizeLinear", *parts)
    first = draft.op("ConvTranspose", draft.read(np.uint8), w)
    second = draft.read(np.int8, first)
    draft.op("ConvTranspose", second, w, out="y")
    found = changed(draft.model([1, 4, 6, 6]), "avx2")
    assert found is not None
    assert [change.what for change in found.changes] == [What.WEIGHTS]
    (new,) = (
        data
        for t in found.model.graph.initializer
        if (data := numpy_helper.to_array(t)).shape == (4, 4, 3, 3)
    )
    assert np.abs(new.astype(int)).max() <= 64


def test_only_the_channels_that_need_it_change() -> None:
    draft = Draft(np.random.default_rng(0))
    w = draft.weights(CONV)
    w[3:] = np.clip(w[3:], -1e-3, 1e-3)
    w[3:, 0, 0, 0] = 1  # one large weight for each: no pair leaves s16
    parts = map(draft.constant, coded(w, 0))
    draft.op("Conv", draft.read(), draft.op("DequantizeLinear", *parts, axis=0), out="y")
    model = draft.model()
    found = changed(model, "avx2")
    assert found is not None
    assert found.changes[0].channels == frozenset({0, 1, 2})
    x = draft.rng.uniform(-3, 3, X).astype(np.float32)
    old, new = (run(each, x) for each in (model, found.model))
    assert np.array_equal(old[:, 3:], new[:, 3:])
    assert not np.array_equal(old[:, :3], new[:, :3])


def attention(draft: Draft, form: str, dtype: type = np.uint8) -> onnx.ModelProto:
    """A product of two computed factors."""
    left = draft.op("Mul", "x", draft.constant(np.float32(0.9)))
    right = draft.op(
        "Transpose", draft.op("Mul", "x", draft.constant(np.float32(0.7))), perm=[1, 0]
    )
    if form == "FakeQuantize":
        ends = [draft.constant(np.float32(end)) for end in (-3.6, 4.05)] * 2
        attrs = {"domain": "org.openvinotoolkit", "levels": 256}
        factors = [draft.op("FakeQuantize", value, *ends, **attrs) for value in (left, right)]
    else:
        factors = [draft.read(dtype, value) for value in (left, right)]
    draft.op("MatMul", *factors, out="y")
    return draft.model([48, 64])


@pytest.mark.parametrize("form", ["QuantizeLinear", "FakeQuantize"])
def test_weights_that_are_computed_get_a_source_of_7_bits(form: str) -> None:
    draft = Draft(np.random.default_rng(1))
    model = attention(draft, form)
    found = changed(model, "avx2")
    assert found is not None
    assert [change.what for change in found.changes] == [What.ACTIVATION]
    x = draft.rng.uniform(-5, 5, (48, 64)).astype(np.float32)
    assert sqnr_of(*(run(each, x) for each in (model, found.model))) >= GOOD
    y = [
        fqfuse.InferenceSession(found.plan, "numpy", isa=isa).run(None, {"x": x})[0]
        for isa in ("vnni", "avx2")
    ]
    assert np.array_equal(*y)


def test_what_cannot_be_changed_is_named() -> None:
    """Both factors s8: the pairs of their product saturate behind the shift, whatever the range."""
    draft = Draft(np.random.default_rng(2))
    parameters = draft.constant(np.float32(0.03)), draft.constant(np.int8(3))
    codes = draft.op("QuantizeLinear", "x", *parameters)
    both = (codes, *parameters, codes, *parameters, *parameters)
    summed = draft.op("QLinearAdd", *both, domain="com.microsoft")
    turned = draft.op("Transpose", summed, perm=[1, 0])
    out = draft.op("QLinearMatMul", summed, *parameters, turned, *parameters, *parameters)
    draft.op("DequantizeLinear", out, *parameters, out="y")
    with pytest.raises(UnsupportedOp, match="7 bits cannot be written") as caught:
        changed(draft.model([8, 8]), "avx512_core")
    assert caught.value.where
    assert caught.value.hint


@pytest.mark.parametrize("returned", [False, True])
def test_the_source_of_an_operator_on_codes(returned: bool) -> None:
    """It becomes one of 7 bits, unless the model returns its codes, which say something to its caller."""
    draft = Draft(np.random.default_rng(3))
    parameters = draft.constant(np.float32(0.03)), draft.constant(np.uint8(120))
    codes = draft.op("QuantizeLinear", "x", *parameters)
    other = draft.constant(np.float32(0.03)), draft.constant(np.int8(0))
    turned = draft.op("QuantizeLinear", draft.op("Transpose", "x", perm=[1, 0]), *other)
    out = draft.op("QLinearMatMul", codes, *parameters, turned, *other, *parameters)
    draft.op("DequantizeLinear", out, *parameters, out="y")
    model = draft.model([8, 8])
    if returned:
        model.graph.output.append(helper.make_tensor_value_info(codes, TensorProto.UINT8, [8, 8]))
        with pytest.raises(UnsupportedOp, match="the model returns its codes") as caught:
            changed(model, "avx2")
        assert caught.value.where == "n0"
        return
    found = changed(model, "avx2")
    assert found is not None
    assert [change.what for change in found.changes] == [What.ACTIVATION]
    x = draft.rng.uniform(-3, 3, (8, 8)).astype(np.float32)
    # one step of 7 bits of the source, against the outputs' own step: coarser than weights of 7 bits
    assert sqnr_of(*(run(each, x) for each in (model, found.model))) >= 20


def product(draft: Draft, rows: int = 16) -> onnx.ModelProto:
    """Codes by weights of codes."""
    parts = map(draft.constant, coded(draft.weights((24, rows)).T.copy(), 1))
    draft.op("MatMul", draft.read(), draft.op("DequantizeLinear", *parts, axis=1), out="y")
    return draft.model([5, rows], [5, 24])


def test_weights_in_a_constant_node() -> None:
    model = product(Draft(np.random.default_rng(4)))
    tensor = model.graph.initializer.pop(2)
    node = helper.make_node("Constant", [], [tensor.name], name="weights", value=tensor)
    model.graph.node.insert(0, node)
    found = changed(model, "avx2")
    assert found is not None
    onnx.checker.check_model(found.model)
    x = np.random.default_rng(5).uniform(-3, 3, (5, 16)).astype(np.float32)
    assert sqnr_of(*(run(each, x) for each in (model, found.model))) >= GOOD


def test_data_in_another_file(tmp_path: Path) -> None:
    """The new file holds it, wherever it lies."""
    model = product(Draft(np.random.default_rng(6)), 256)
    path, out = tmp_path / "model.onnx", tmp_path / "elsewhere" / "out.onnx"
    out.parent.mkdir()
    x = np.random.default_rng(7).uniform(-3, 3, (5, 256)).astype(np.float32)
    before = run(model, x)
    onnx.save(model, path, save_as_external_data=True, location="model.data", size_threshold=0)
    assert fqfuse.simulate(path, fix=out)["fix"]["agree"]
    assert sqnr_of(before, run(onnx.load(out), x)) >= GOOD
    assert [file.name for file in out.parent.iterdir()] == ["out.onnx"]


def test_a_file_from_before_initializers_stood_alone() -> None:
    model = product(Draft(np.random.default_rng(8)))
    model.ir_version = 3
    for tensor in model.graph.initializer:
        model.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", 13))
    found = changed(model, "avx2")
    assert found is not None
    onnx.checker.check_model(found.model)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in NETWORKS if not n.startswith(("lstm", "bert-absurd"))])
@pytest.mark.parametrize("isa", ["avx2", "avx512_core"])
def test_networks(name: str, isa: str) -> None:
    """Every layer that needs it in whole networks: proven, and the same bits on both CPUs."""
    subject = subject_of(NETWORKS[name](), isa)
    assert subject.at_risk
    outcome = outcome_of(subject, fixed(subject), samples_for(subject))
    assert outcome.agree
    assert all(answer.there.sqnr > 5 for answer in outcome.answers.values())
