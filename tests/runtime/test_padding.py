"""A zero point that is no integer in front of a window with padding: the sums stay exact integers, and
one addition takes off what the padding has no part in.

The judges are integers and Python's fractions, and ONNX Runtime on what FakeQuantize means.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import onnx
import pytest
from laws.runtimes import EACH_RUNTIME
from support.onnx_cases import model, node, random, run_ort
from support.plan_text import parse_plan

import fqfuse
from fqfuse.ir.ops import OPS
from fqfuse.ir.types import DType, Quantization, TensorType
from fqfuse.plan.attributes import PrimitiveAttr, Scale, ZeroPoint
from fqfuse.plan.conversion.convert import convert
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan, Step
from fqfuse.plan.verify import verify_plan
from fqfuse.runtime.session import InferenceSession

TARGETS = ("onednn-v3", "onednn-v2", "unified")
OPENVINO = "org.openvinotoolkit"
F32 = np.float32

# -- one step, in fractions ------------------------------------------------------------------------

ZERO_POINTS = (127.5, 0.5, float(F32(6.4e-5)), float(F32(-0.3)), float(F32(100.7)), 1e-30)
GEOMETRIES = {
    "same": ("Conv", {"pads": (1, 1, 1, 1)}, 1),
    "asymmetric": ("Conv", {"pads": (0, 2, 1, 0), "strides": (2, 1)}, 1),
    "dilated": ("Conv", {"pads": (2, 2, 2, 2), "dilations": (2, 3)}, 1),
    "wider than the image": ("Conv", {"pads": (5, 4, 5, 4), "strides": (3, 2)}, 1),
    "auto_pad": ("Conv", {"auto_pad": "SAME_LOWER", "strides": (2, 2)}, 1),
    "no padding": ("Conv", {}, 1),
    "grouped": ("Conv", {"pads": (1, 1, 1, 1)}, 2),
    "depthwise": ("Conv", {"pads": (1, 0, 1, 0)}, 4),
    "transposed": ("ConvTranspose", {"pads": (1, 0, 0, 1), "strides": (2, 3)}, 1),
    "transposed, cropped": ("ConvTranspose", {"pads": (1, 1, 1, 1)}, 1),
    "transposed, beyond the last tap": (
        "ConvTranspose",
        {"strides": (3, 2), "output_padding": (2, 1)},
        1,
    ),
}


def layer(
    geometry: str, zero: float, target: str, dtype: DType = DType.U8
) -> tuple[Plan, np.ndarray]:
    """A layer of four channels by its plan, and its source."""
    op, params, group = GEOMETRIES[geometry]
    rng = np.random.default_rng(len(geometry))
    codes = rng.integers(*dtype.range, (2, 4, 5, 6), endpoint=True).astype(dtype.numpy)
    weights = rng.integers(-127, 128, (4, 4 // group, 3, 3)).astype(np.int8)
    each = tuple(rng.uniform(0.005, 0.02, 4).astype(F32).tolist())
    points = {"src": ZeroPoint((zero,))}
    if target == "onednn-v2":
        attr = PrimitiveAttr({}, points, (), Scale(each, 2))
    else:
        scales = {"src": Scale((float(F32(0.02)),)), "weights": Scale(each, 1 if group == 1 else 3)}
        attr = PrimitiveAttr(scales, points)
    primitive = {"Conv": "convolution", "ConvTranspose": "deconvolution"}[op]
    args = (("src", "x"), ("weights", "w"), ("bias", "b"))
    step = Step("layer", primitive, op, args, ("y",), {**params, "group": group}, attr, ("layer",))
    source = TensorType(dtype, ("N", 4, "H", "W"), Quantization.of(0.02, zero))
    row, real = OPS[op], TensorType(DType.F32, source.shape)
    kernel = TensorType(DType.F32, weights.shape)
    (result,) = row.infer([real, kernel, None], row.complete(step.params), [None] * 3)
    constants = {"w": weights, "b": rng.normal(0, 3, 4).astype(F32)}
    plan = Plan("layer", target, ("x",), ("y",), {"x": source, "y": result}, constants, (step,))
    assert verify_plan(plan) == []
    assert parse_plan(print_plan(plan)) == plan
    return plan, codes


def exactly(plan: Plan, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sums of codes less the integer part of the zero point, and the numbers of weights behind
    each: as ONNX's reference evaluator adds up, in f64, where both are exact.
    """
    (step,) = plan.steps
    nearest = step.attr.zero_points["src"].array[0]
    weights = plan.constants["w"].astype(np.float64)
    attrs = {k: list(v) if isinstance(v, tuple) else v for k, v in step.params.items()}
    double = onnx.TensorProto.DOUBLE
    layer = onnx.helper.make_graph(
        [node(step.op, ["x", "w"], **attrs)],
        "layer",
        [onnx.helper.make_tensor_value_info(name, double, None) for name in "xw"],
        [onnx.helper.make_tensor_value_info("y", double, None)],
    )
    proto = onnx.helper.make_model(layer, opset_imports=[onnx.helper.make_opsetid("", 21)])
    run = onnx.reference.ReferenceEvaluator(proto).run
    (acc,) = run(None, {"x": codes.astype(np.float64) - nearest, "w": weights})
    (read,) = run(None, {"x": np.ones(codes.shape), "w": weights})
    return acc, read


@EACH_RUNTIME
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("zero", ZERO_POINTS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_every_place_is_within_four_roundings(
    geometry: str, zero: float, target: str, runtime: str
) -> None:
    if target == "unified" and runtime == "onednn":
        pytest.skip("NumPy alone runs unified")
    plan, codes = layer(geometry, zero, target)
    (found,) = InferenceSession(plan, runtime, 1).run(None, {"x": codes})
    acc, read = exactly(plan, codes)
    assert found.shape == acc.shape
    attr = plan.steps[0].attr
    scales = [s for s in (*attr.scales.values(), attr.output_scales) if s is not None]
    bias = plan.constants["b"]
    fraction = Fraction(zero) - int(attr.zero_points["src"].array[0])
    for place in itertools.product(*map(range, found.shape)):
        factor = Fraction(1)
        for scale in scales:
            factor *= Fraction(scale.values[place[1] % len(scale.values)])
        added = Fraction(float(bias[place[1]])) * (factor if target == "onednn-v2" else 1)
        product, shift = factor * int(acc[place]), added - fraction * factor * int(read[place])
        # The scales' product, its product with the sum, the shift, and the addition are rounded.
        slack = Fraction(1, 1 << 24) * (3 * abs(product) + 2 * abs(shift)) + Fraction(1, 1 << 149)
        assert abs(Fraction(float(found[place])) - (product + shift)) <= slack, place


@pytest.mark.parametrize("how", ["mechanical", "semantic"])
@pytest.mark.parametrize("geometry", ["same", "transposed"])
def test_a_converted_plan_keeps_the_zero_point(geometry: str, how: str) -> None:
    plan, codes = layer(geometry, 127.5, "onednn-v2")
    converted = convert(plan, how=how)
    assert converted.steps[0].attr.zero_points["src"] == ZeroPoint((127.5,))
    ours, theirs = (
        InferenceSession(p, "numpy", 1).run(None, {"x": codes})[0] for p in (plan, converted)
    )
    if how == "mechanical":
        np.testing.assert_array_equal(ours, theirs)
    else:  # the bias is multiplied in another place
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6 * np.abs(ours).max())


@EACH_RUNTIME
def test_the_tensor_follows_the_shapes_that_a_session_meets(runtime: str) -> None:
    plan, codes = layer("asymmetric", 127.5, "onednn-v3")
    session = InferenceSession(plan, runtime, 1)
    for height, width in ((5, 6), (2, 1), (4, 2), (5, 6)):
        part = np.ascontiguousarray(codes[:, :, :height, :width])
        (found,) = session.run(None, {"x": part})
        acc, read = exactly(plan, part)
        scales = plan.steps[0].attr.scales
        factor = 0.02 * scales["weights"].array.astype(np.float64).reshape(-1, 1, 1)
        wanted = factor * (acc + 0.5 * read) + plan.constants["b"].reshape(-1, 1, 1)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.of_vnni("in f32 no kernel subtracts a zero point")
def test_a_zero_point_without_an_integer_part_is_none_for_the_library() -> None:
    """A source without one has faster kernels."""
    plan, codes = layer("same", 6.4e-5, "onednn-v3")
    whole, _ = layer("same", 0, "onednn-v3")
    places = []
    for each in (plan, whole):
        session = InferenceSession(each, "onednn", 1)
        session.run(None, {"x": codes})
        places += [place.implementation for place in session.placement()]
    assert places[0] == places[1] != ""


# -- whole models ----------------------------------------------------------------------------------


def meant(x: str, low: str, high: str, out: str) -> list[onnx.NodeProto]:
    """FakeQuantize of 256 levels in ONNX's own operations."""
    return [
        node("Max", [x, low], [f"{out}/a"]),
        node("Min", [f"{out}/a", high], [f"{out}/b"]),
        node("Sub", [f"{out}/b", low], [f"{out}/c"]),
        node("Sub", [high, low], [f"{out}/d"]),
        node("Div", [f"{out}/d", "255"], [f"{out}/e"]),
        node("Div", [f"{out}/c", f"{out}/e"], [f"{out}/f"]),
        node("Round", [f"{out}/f"], [f"{out}/g"]),
        node("Mul", [f"{out}/g", f"{out}/e"], [f"{out}/h"]),
        node("Add", [f"{out}/h", low], [out]),
    ]


def network(low: float, high: float, *, plain: bool) -> onnx.ModelProto:
    """quantizer -> 3x3 -> relu -> quantizer -> depthwise -> quantizer -> transposed."""

    def quantizer(x: str, low: str, high: str, out: str) -> list[onnx.NodeProto]:
        if plain:
            return meant(x, low, high, out)
        ends = [low, high, low, high]
        return [node("FakeQuantize", [x, *ends], [out], name=out, domain=OPENVINO, levels=256)]

    def codes(seed: int, *shape: int) -> np.ndarray:
        return np.random.default_rng(seed).integers(-127, 128, shape).astype(np.int8)

    weights = {"w1": codes(1, 8, 3, 3, 3), "w2": codes(2, 8, 1, 5, 5), "w3": codes(3, 8, 4, 3, 3)}
    decoded = [
        node("DequantizeLinear", [name, "scale", "zero"], [f"{name}/f"], name=f"{name}/f")
        for name in weights
    ]
    nodes = [
        *decoded,
        *quantizer("x", "low", "high", "q1"),
        node("Conv", ["q1", "w1/f", "bias"], ["c1"], name="c1", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"], name="r1"),
        *quantizer("r1", "tiny", "high", "q2"),
        node(
            "Conv",
            ["q2", "w2/f"],
            ["c2"],
            name="c2",
            group=8,
            auto_pad="SAME_UPPER",
            strides=[2, 2],
        ),
        *quantizer("c2", "low", "high", "q3"),
        node("ConvTranspose", ["q3", "w3/f"], ["y"], name="c3", strides=[2, 2], pads=[1, 0, 0, 1]),
    ]
    constants = {
        **weights,
        "scale": F32(0.004),
        "zero": np.int8(0),
        "bias": random([8], 5),
        "low": F32(low),
        "high": F32(high),
        "tiny": F32(-1e-6),
        "255": F32(255),
    }
    domains = {} if plain else {OPENVINO: 1}
    return model(nodes, inputs={"x": ["N", 3, "H", "W"]}, constants=constants, domains=domains)


@EACH_RUNTIME
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("low", "high"), [(-2.0, 2.0), (-1.3, 3.1), (0.25, 2.0)])
def test_a_network_is_int8_and_gives_what_onnx_runtime_gives(
    low: float, high: float, target: str, runtime: str
) -> None:
    plan = fqfuse.compile(network(low, high, plain=False), target=target)
    kinds = [(s.primitive, plan.type(s.inputs[0]).dtype) for s in plan.steps]
    u8 = DType.U8
    assert kinds[1:] == [("convolution", u8), ("convolution", u8), ("deconvolution", u8)]
    told = {fate.consumer: fate for fate in plan.fate_records if fate.quantizer.startswith("q")}
    for layer in ("c1", "c2", "c3"):
        assert told[layer].fate.value == "source_scale"
        assert "position by position" in told[layer].reason
    feeds = {"x": random((2, 3, 9, 7), 7, scale=1.5)}
    (wanted,) = run_ort(network(low, high, plain=True), feeds)
    if target == "unified" and runtime == "onednn":
        return  # NumPy alone runs it
    (found,) = InferenceSession(plan, runtime, 1).run(None, feeds)
    # A number next to a tie becomes the next code in front of one of 288 weights at most: 0.51 * a step
    # of the quantizer. Such are few.
    off = np.abs(found - wanted)
    assert off.max() <= 3 * 0.51 * (high - low) / 255
    assert (off > 1e-4).mean() < 0.02


@EACH_RUNTIME
def test_the_bias_by_position_is_part_of_what_a_run_may_take(runtime: str) -> None:
    """It is as large as one image of the result in f32, and refused before it is made."""
    positions = 512 * 96 * 96 * 4

    def run(low: float) -> None:
        ends = {"low": F32(low), "high": F32(1.0), "least": F32(0), "most": F32(4)}
        nodes = [
            node("FakeQuantize", ["x", *["low", "high"] * 2], ["q"], domain=OPENVINO, levels=256),
            node("DequantizeLinear", ["w", "high"], ["v"]),
            node("Conv", ["q", "v"], ["c"], pads=[1, 1, 1, 1]),
            node("FakeQuantize", ["c", *["least", "most"] * 2], ["d"], domain=OPENVINO, levels=256),
            node("MaxPool", ["d"], ["y"], kernel_shape=[96, 96]),
        ]
        constants = {**ends, "w": np.ones((512, 1, 3, 3), np.int8)}
        shape = {"x": ["N", 1, 96, 96]}
        plan = fqfuse.compile(
            model(nodes, inputs=shape, constants=constants, domains={OPENVINO: 1})
        )
        budgets = fqfuse.Budgets(run_bytes=positions - 1)
        session = fqfuse.InferenceSession(plan, runtime, 1, budgets=budgets)
        session.run(None, {"x": random((1, 1, 96, 96), 3)})

    run(-128 / 127)  # zero point 128
    with pytest.raises(fqfuse.InvalidInput, match=f"one run takes {positions:,} bytes"):
        run(-1.0)  # 127.5
