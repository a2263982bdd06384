"""`compile(model, dynamic=...)`: what no quantizer of an f32 model quantizes, by the range at run time;
against the nodes that ONNX Runtime's quantize_dynamic writes for the same model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from support.onnx_cases import model, node, random, run_ort

import fqfuse
from fqfuse.errors import InvalidInput
from fqfuse.ir.types import DType
from fqfuse.plan.types import Plan, Step

EACH_RUNTIME = pytest.mark.parametrize("runtime", ["numpy", "onednn"])
WQ, WK, WO = (random((24, 24), seed, 0.2) for seed in (1, 2, 3))
KERNEL, BIAS = random((12, 3, 3, 3), 4, 0.2), random((12,), 5)
Constants = dict[str, np.ndarray]


def symmetric(weights: np.ndarray, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scales, one for each output channel, as quantize_dynamic has them."""
    columns = np.moveaxis(weights, outputs, 0).reshape(weights.shape[outputs], -1)
    scales = (np.abs(columns).max(1).astype(np.float64) * 2 / 254).astype(np.float32)
    shape = [-1 if axis == outputs else 1 for axis in range(weights.ndim)]
    codes = np.clip(np.rint(weights / scales.reshape(shape)), -127, 127)
    return codes.astype(np.int8), scales


def dynamic_product(
    op: str, source: str, weights: str, constants: Constants, output: str, **attributes: object
) -> list[onnx.NodeProto]:
    """A MatMulInteger or ConvInteger of codes `<source>_q`, cast and multiplied."""
    matrix = op == "MatMulInteger"
    codes, scales = symmetric(constants.pop(weights), 1 if matrix else 0)
    constants[f"{weights}_q"] = codes
    constants[f"{weights}_s"] = scales if matrix else scales.reshape(1, -1, 1, 1)
    inputs = [f"{source}_q", f"{weights}_q", f"{source}_z"]
    return [
        node(op, inputs, [f"{output}_i"], **attributes),
        node("Cast", [f"{output}_i"], [f"{output}_f"], to=TensorProto.FLOAT),
        node("Mul", [f"{source}_s", f"{weights}_s"], [f"{output}_m"]),
        node("Mul", [f"{output}_f", f"{output}_m"], [output]),
    ]


def quantizer(source: str) -> onnx.NodeProto:
    outputs = [f"{source}_{part}" for part in "qsz"]
    return node("DynamicQuantizeLinear", [source], outputs)


def attention(products: bool) -> onnx.ModelProto:
    """Two products of one source, the scores of both, a third product; as f32, or as
    quantize_dynamic writes it.
    """
    constants: Constants = {"q": WQ, "k": WK, "o": WO, "b": BIAS.repeat(2)}
    if products:
        nodes = [quantizer("x")]
        for name in "qk":
            nodes += dynamic_product("MatMulInteger", "x", name, constants, f"x{name}")
    else:
        nodes = [node("MatMul", ["x", name], [f"x{name}"]) for name in "qk"]
    nodes += [
        node("Transpose", ["xk"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["xq", "t"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "x"], ["c"]),
    ]
    if products:
        nodes += [quantizer("c"), *dynamic_product("MatMulInteger", "c", "o", constants, "d")]
    else:
        nodes.append(node("MatMul", ["c", "o"], ["d"]))
    nodes.append(node("Add", ["d", "b"], ["y"]))
    return model(nodes, inputs={"x": ["N", 6, 24]}, constants=constants)


def image(products: bool) -> onnx.ModelProto:
    """A convolution, a pool, a fully connected layer."""
    constants: Constants = {"w": KERNEL, "b": BIAS, "o": random((12, 5), 7, 0.3)}
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    if products:
        constants["b"] = BIAS.reshape(1, -1, 1, 1)
        nodes = [
            quantizer("x"),
            *dynamic_product("ConvInteger", "x", "w", constants, "a", **window),
        ]
        nodes.append(node("Add", ["a", "b"], ["c"]))
    else:
        nodes = [node("Conv", ["x", "w", "b"], ["c"], **window)]
    nodes += [
        node("Relu", ["c"], ["r"]),
        node("GlobalAveragePool", ["r"], ["g"]),
        node("Flatten", ["g"], ["f"]),
    ]
    if products:
        nodes += [quantizer("f"), *dynamic_product("MatMulInteger", "f", "o", constants, "y")]
    else:
        nodes.append(node("MatMul", ["f", "o"], ["y"]))
    return model(nodes, inputs={"x": ["N", 3, 8, 8]}, constants=constants)


MODELS = {"attention": (attention, (2, 6, 24), 3), "image": (image, (2, 3, 8, 8), 2)}
"""Name -> f32 model and the same quantized, the shape of x, how many products have weights."""


def in_int8(plan: Plan) -> list[Step]:
    products = [step for step in plan.steps if step.primitive in ("matmul", "convolution")]
    return [step for step in products if plan.type(step.arg("src")).dtype is not DType.F32]


@EACH_RUNTIME
@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_are_those_of_a_model_that_was_quantized_so(name: str, runtime: str) -> None:
    make, shape, count = MODELS[name]
    plan = fqfuse.compile(make(False), dynamic="all")
    assert len(in_int8(plan)) == count
    session = fqfuse.InferenceSession(plan, runtime, 1)
    for seed in range(3):
        x = random(shape, seed)
        (found,) = session.run(None, {"x": x})
        (expected,) = run_ort(make(True), {"x": x})
        # f32 roundings of the same integers; a code of the second quantizer next to a tie would
        # show as a quantum, which is a hundred times as much
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())
        (real,) = run_ort(make(False), {"x": x})
        noise = 10 * np.log10((real**2).sum() / ((found - real) ** 2).sum())
        assert noise > 30, "two quantizers of 8 bits lose about 40 dB"


def test_one_quantizer_serves_all_products_of_a_source() -> None:
    plan = fqfuse.compile(attention(False), dynamic="matmul")
    assert sum(step.op == "DynamicRange" for step in plan.steps) == 2
    assert sorted(plan.quantizers) == [
        "d.dynamic",
        "d.weights",
        "xk.weights",
        "xq.dynamic",
        "xq.weights",
    ]
    assert plan.options["dynamic"] == "matmul"


def test_convolutions_are_quantized_where_all_are_asked_for() -> None:
    primitives = {
        word: [step.primitive for step in in_int8(fqfuse.compile(image(False), dynamic=word))]
        for word in ("matmul", "all", None)
    }
    assert primitives == {"matmul": ["matmul"], "all": ["convolution", "matmul"], None: []}


@pytest.mark.parametrize("word", ["matmul", "all"])
def test_what_the_model_quantizes_stays_as_it_is(word: str) -> None:
    constants = {
        "s": np.float32(0.02),
        "z": np.uint8(9),
        "w": symmetric(WQ, 1)[0],
        "ws": np.float32(0.01),
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws"], ["v"]),
        node("MatMul", ["d", "v"], ["y"]),
    ]
    built = model(nodes, inputs={"x": [4, 24]}, constants=constants)
    plain, found = fqfuse.compile(built), fqfuse.compile(built, dynamic=word)
    assert found.steps == plain.steps
    assert found.constants.keys() == plain.constants.keys()


@EACH_RUNTIME
def test_weights_that_are_codes_already_stay_the_models_own(runtime: str) -> None:
    codes = symmetric(WQ, 1)[0]
    constants = {"w": codes, "ws": np.float32(0.01)}
    built = model(
        [node("DequantizeLinear", ["w", "ws"], ["v"]), node("MatMul", ["x", "v"], ["y"])],
        inputs={"x": [4, 24]},
        constants=constants,
    )
    plan = fqfuse.compile(built, dynamic="matmul")
    (step,) = in_int8(plan)
    np.testing.assert_array_equal(plan.constants[step.arg("weights")], codes)
    x = random((4, 24))
    (found,) = fqfuse.InferenceSession(plan, runtime).run(None, {"x": x})
    (real,) = run_ort(built, {"x": x})
    assert (
        np.abs(found - real).max() < 0.02 * np.abs(real).max()
    )  # half a code of x, for 24 of them


@pytest.mark.parametrize("target", ["onednn-v2", "unified"])
def test_every_target_has_the_option(target: str) -> None:
    plan = fqfuse.compile(attention(False), dynamic="matmul", target=target)
    assert len(in_int8(plan)) == 3
    x = random((2, 6, 24))
    (found,) = fqfuse.InferenceSession(plan, "numpy").run(None, {"x": x})
    (expected,) = run_ort(attention(True), {"x": x})
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("word", ["", "conv", 1, True, ["matmul"]])
def test_another_word_is_refused(word: object) -> None:
    with pytest.raises(InvalidInput, match="no dynamic quantization"):
        fqfuse.compile(image(False), dynamic=word)


def test_weights_that_are_not_finite_stay_and_say_why() -> None:
    weights: Sequence[float] = np.where(np.eye(24), np.inf, WQ).astype(np.float32)
    built = model(
        [node("MatMul", ["x", "w"], ["y"])], inputs={"x": [4, 24]}, constants={"w": weights}
    )
    plan = fqfuse.compile(built, dynamic="matmul")
    assert not in_int8(plan)
    (decision,) = [d for d in plan.decision_records if d.rule == "quantize_at_run_time"]
    assert decision.reason == "the weights hold what is no finite number"


@EACH_RUNTIME
@pytest.mark.parametrize("op", ["MatMul", "Conv", "ConvTranspose"])
def test_weights_without_outputs_stay_as_they_are(op: str, runtime: str) -> None:
    shape = {"MatMul": (4, 0), "Conv": (0, 4, 3), "ConvTranspose": (4, 0, 3)}[op]
    x = random((1, 4, 4))
    built = model(
        [node(op, ["x", "w"])],
        inputs={"x": [1, 4, 4]},
        constants={"w": np.zeros(shape, np.float32)},
    )
    plan = fqfuse.compile(built, dynamic="all")
    (found,) = fqfuse.InferenceSession(plan, runtime).run(None, {"x": x})
    assert found.shape == {"MatMul": (1, 4, 0), "Conv": (1, 0, 2), "ConvTranspose": (1, 0, 6)}[op]


def test_fates_tell_which_step_quantizes() -> None:
    plan = fqfuse.compile(attention(False), dynamic="matmul")
    told = {
        (fate.quantizer, fate.half.value): (fate.fate.value, fate.step)
        for fate in plan.fate_records
    }
    divisions = [index for index, step in enumerate(plan.steps) if step.op == "Div"]
    assert told["xq.dynamic", "quantize"] == ("standalone", divisions[0])
    assert told["d.dynamic", "quantize"] == ("standalone", divisions[1])
    assert told["xq.weights", "quantize"] == ("constant", None)
    assert told["xq.dynamic", "dequantize"][0] == "source_scale"
    assert told["xq.weights", "dequantize"][0] == "weights_scale"


def test_weights_that_no_product_takes_leave_the_source_in_f32() -> None:
    constants = {"w": symmetric(WQ, 1)[0], "ws": np.full(24, 0.01, np.float32)}
    nodes = [
        node("DequantizeLinear", ["w", "ws"], ["v"], axis=0),
        node("MatMul", ["x", "v"], ["y"]),
    ]
    plan = fqfuse.compile(
        model(nodes, inputs={"x": [4, 24]}, constants=constants), dynamic="matmul"
    )
    assert [step.primitive for step in plan.steps] == ["matmul"]
    (decision,) = [d for d in plan.decision_records if d.rule == "quantize_at_run_time"]
    assert decision.found == "s8, axis 0"


def test_weights_in_groups_by_a_zero_point_leave_the_source_in_f32() -> None:
    weights = np.array([[[0, 255]], [[255, 0]]], np.uint8)
    constants = {"w": weights, "ws": np.float32(0.01), "wz": np.uint8(120)}
    nodes = [
        node("DequantizeLinear", ["w", "ws", "wz"], ["v"]),
        node("Conv", ["x", "v"], ["y"], group=2, kernel_shape=[2]),
    ]
    built = model(nodes, inputs={"x": [1, 2, 9]}, constants=constants)
    assert not in_int8(fqfuse.compile(built, dynamic="all"))
    constants["wz"] = np.uint8(128)
    built = model(nodes, inputs={"x": [1, 2, 9]}, constants=constants)
    assert len(in_int8(fqfuse.compile(built, dynamic="all"))) == 1


@EACH_RUNTIME
@pytest.mark.parametrize("group", [1, 3])
def test_deconvolutions_are_quantized_where_all_are_asked_for(group: int, runtime: str) -> None:
    """By the numbers of u8 codes of the whole range and of s8 weights by 127/max of each channel."""
    weights = random((6, 4, 3, 2), 3, 0.3)
    built = model(
        [node("ConvTranspose", ["x", "w"], ["y"], group=group, strides=[2, 1], pads=[1, 0, 1, 1])],
        inputs={"x": ["N", 6, "H", 5]},
        constants={"w": weights},
    )
    plan = fqfuse.compile(built, dynamic="all")
    (step,) = [step for step in plan.steps if step.primitive == "deconvolution"]
    assert plan.type(step.arg("src")).dtype is DType.U8
    x = random((2, 6, 4, 5), 4)
    (found,) = fqfuse.InferenceSession(plan, runtime).run(None, {"x": x})
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32((high - low) / np.float32(255))
    zero = np.rint(-low / scale)
    real = (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale
    scales = (np.abs(weights.astype(np.float64)).max((0, 2, 3)) / 127).astype(np.float32)
    scales = scales.reshape(1, -1, 1, 1)
    decoded = np.rint(weights / scales) * scales
    (expected,) = run_ort(
        model(
            [
                node(
                    "ConvTranspose",
                    ["x", "w"],
                    ["y"],
                    group=group,
                    strides=[2, 1],
                    pads=[1, 0, 1, 1],
                )
            ],
            inputs={"x": list(x.shape)},
            constants={"w": decoded.astype(np.float32)},
        ),
        {"x": real.astype(np.float32)},
    )
    # sums of 36 products, in f32 there
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-6 * np.abs(expected).max())
