"""Scales and zero points that are computed while the model runs, on both runtimes, against ONNX
Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.onnx_cases import model, node, run_ort

import fqfuse
from fqfuse.plan.arguments import AT_RUN_TIME, SOURCE_AT_RUN_TIME
from fqfuse.plan.attributes import Binary
from fqfuse.plan.types import Plan, Step

EACH_RUNTIME = pytest.mark.parametrize("runtime", ["numpy", "onednn"])
FLOAT = TensorProto.FLOAT


def weights_of(shape: Sequence[int], dtype: type, seed: int = 0) -> np.ndarray:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def dynamic(
    op: str,
    weights: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray,
    inputs: Sequence[int | str],
    bias: np.ndarray | None = None,
    **attributes: object,
) -> onnx.ModelProto:
    """What ONNX Runtime's dynamic quantization writes for one product and its activation."""
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node(op, ["q", "w", "z", "wz"], ["i"], **attributes),
        node("Cast", ["i"], ["f"], to=FLOAT),
        node("Mul", ["s", "ws"], ["sw"]),
        node("Mul", ["f", "sw"], ["y" if bias is None else "p"]),
    ]
    constants = {"w": weights, "ws": scale, "wz": zero}
    if bias is not None:
        nodes += [node("Add", ["p", "b"], ["a"]), node("Relu", ["a"], ["y"])]
        constants["b"] = bias
    return model(nodes, inputs={"x": inputs}, constants=constants)


def source_at_run_time(plan: Plan) -> list[Step]:
    return [step for step in plan.steps if step.arg(SOURCE_AT_RUN_TIME[0]) is not None]


def parameterized(plan: Plan) -> list[Step]:
    return [step for step in plan.steps if any(role in AT_RUN_TIME for role, _ in step.args)]


def floats(*shape: int, seed: int = 1) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 2 + 0.3).astype(np.float32)


ONE, ZERO = np.float32(0.01), np.int8(0)
COLUMNS = np.linspace(0.005, 0.02, 24).astype(np.float32)
MATRIX, KERNEL = weights_of((16, 24), np.int8), weights_of((8, 3, 3, 3), np.int8)
CASES = {
    "matmul": dynamic("MatMulInteger", MATRIX, ONE, ZERO, ["N", 16]),
    "matmul by columns": dynamic(
        "MatMulInteger", MATRIX, COLUMNS, np.zeros(24, np.int8), ["N", 16], COLUMNS * 9
    ),
    "matmul of three dimensions": dynamic(
        "MatMulInteger", MATRIX, ONE, ZERO, ["N", 5, 16], COLUMNS
    ),
    "matmul of u8 weights": dynamic(
        "MatMulInteger", weights_of((16, 24), np.uint8), ONE, np.uint8(119), ["N", 16], COLUMNS
    ),
    "convolution": dynamic(
        "ConvInteger", KERNEL, ONE, ZERO, ["N", 3, 9, 8], floats(8, 1, 1), pads=[1, 1, 1, 1]
    ),
    "convolution by channels": dynamic(
        "ConvInteger",
        KERNEL,
        np.linspace(0.01, 0.02, 8).astype(np.float32).reshape(8, 1, 1),
        ZERO,
        ["N", 3, 9, 8],
        strides=[2, 1],
    ),
    "depthwise convolution": dynamic(
        "ConvInteger",
        weights_of((6, 1, 3, 3), np.int8),
        ONE,
        ZERO,
        ["N", 6, 7, 7],
        group=6,
        pads=[1, 1, 1, 1],
    ),
}


@EACH_RUNTIME
@pytest.mark.parametrize("case", CASES)
def test_dynamic_quantization_is_onnx_runtimes_own(case: str, runtime: str) -> None:
    plan = fqfuse.compile(CASES[case])
    (step,) = source_at_run_time(plan)
    assert not any("Integer" in other.primitive for other in plan.steps)
    session = fqfuse.InferenceSession(plan, runtime, 2)
    dims = plan.type("x").shape
    for batch in (1, 3, 2):
        x = floats(*(batch if isinstance(dim, str) else dim for dim in dims), seed=batch)
        (found,) = session.run(None, {"x": x})
        (expected,) = run_ort(CASES[case], {"x": x})
        # sums are exact integers; a scale and a bias round once each, fused or not
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    if runtime == "onednn":
        (place,) = [p for p in session.placement() if p.step.name == step.name]
        assert place.runtime == "onednn"


@EACH_RUNTIME
@pytest.mark.parametrize("x", [np.zeros((2, 16), np.float32), np.full((2, 16), 3.5, np.float32)])
def test_a_range_of_one_number(x: np.ndarray, runtime: str) -> None:
    (found,) = fqfuse.InferenceSession(fqfuse.compile(CASES["matmul"]), runtime).run(None, {"x": x})
    np.testing.assert_allclose(found, run_ort(CASES["matmul"], {"x": x})[0], rtol=1e-6)


@EACH_RUNTIME
def test_no_elements(runtime: str) -> None:
    session = fqfuse.InferenceSession(fqfuse.compile(CASES["matmul"]), runtime)
    assert session.run(None, {"x": np.zeros((0, 16), np.float32)})[0].shape == (0, 24)


def product(constants: dict[str, np.ndarray], dtype: type) -> onnx.ModelProto:
    """A product of codes whose scale `s` and zero point `z` are inputs, or constants."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws"], ["v"]),
        node("MatMul", ["d", "v"], ["y"]),
    ]
    inputs = {"q": [4, 16], "s": [], "z": []}
    given = {name: shape for name, shape in inputs.items() if name not in constants}
    held = {"w": MATRIX, "ws": ONE, **constants}
    return model(nodes, inputs=given, constants=held, types={"z": kind, "q": kind})


def drawn(dtype: type, seed: int) -> dict[str, np.ndarray]:
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    return {
        "s": np.asarray(rng.uniform(0.005, 0.05), np.float32),
        "z": np.asarray(rng.integers(info.min, info.max + 1), dtype),
    }


@EACH_RUNTIME
@pytest.mark.parametrize("scale", [(), (1,)])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", [np.int32, np.int8])
def test_one_fed_scale_leaves_the_dimensions_of_what_it_decodes(
    dtype: type, shape: tuple[int, ...], known: bool, scale: tuple[int, ...], runtime: str
) -> None:
    """A number and a vector of one element decode alike, also what has no dimensions itself, or an
    unknown number of them.
    """
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    built = model(
        [node("DequantizeLinear", ["q", "s"])],
        inputs={"q": list(shape), "s": list(scale)},
        types={"q": kind},
    )
    if not known:
        built.graph.input[0].type.tensor_type.ClearField("shape")
    feeds = {"q": np.full(shape, 7, dtype), "s": np.full(scale, 0.3, np.float32)}
    (found,) = fqfuse.InferenceSession(fqfuse.compile(built), runtime).run(None, feeds)
    (wanted,) = run_ort(built, feeds)
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


@EACH_RUNTIME
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_fed_scales_give_what_constant_ones_give(dtype: type, runtime: str) -> None:
    plan = fqfuse.compile(product({}, dtype))
    assert source_at_run_time(plan)
    session = fqfuse.InferenceSession(plan, runtime, 1)
    for seed in range(10):
        numbers, q = drawn(dtype, seed), weights_of((4, 16), dtype, seed)
        alone = fqfuse.InferenceSession(fqfuse.compile(product(numbers, dtype)), runtime, 1)
        (expected,) = alone.run(None, {"q": q})
        (found,) = session.run(None, {"q": q, **numbers})
        assert found.tobytes() == expected.tobytes()


def quantized_product(op: str, stored: bool, given: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Q/DQ around a product with bias and relu: what is not given is an input."""
    weights, shape, axis = (KERNEL, [2, 3, 9, 8], 0) if op == "Conv" else (MATRIX, [4, 16], 1)
    bias = floats(weights.shape[axis], seed=5)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws"], ["v"], axis=axis),
        node(op, ["d", "v", "b"], ["p"]),
        node("Relu", ["p"], ["r" if stored else "y"]),
    ]
    if stored:
        nodes += [
            node("QuantizeLinear", ["r", "os", "oz"], ["o"]),
            node("DequantizeLinear", ["o", "os", "oz"], ["y"]),
        ]
    inputs = {"x": shape, "s": [], "z": [], "ws": list(np.shape(given.get("ws", [])))}
    inputs |= {"os": [], "oz": []} if stored else {}
    return model(
        nodes,
        inputs={name: dims for name, dims in inputs.items() if name == "x" or name not in given},
        constants={"w": weights, "b": bias, **{k: v for k, v in given.items() if k in inputs}},
        types={"z": TensorProto.UINT8, "oz": TensorProto.UINT8},
    )


@pytest.mark.parametrize(
    ("target", "runtime"), [("onednn-v3", "numpy"), ("onednn-v3", "onednn"), ("unified", "numpy")]
)
@pytest.mark.parametrize("stored", [False, True], ids=["f32", "codes"])
@pytest.mark.parametrize("op", ["Conv", "Gemm"])
def test_fed_parameters_of_products(op: str, stored: bool, target: str, runtime: str) -> None:
    """Ten feeds of one session against ten models with the same numbers as constants."""
    scales = {"ws": np.resize(COLUMNS, 8 if op == "Conv" else 24)}
    proto = quantized_product(op, stored, scales)
    session = fqfuse.InferenceSession(fqfuse.compile(proto, target=target), runtime, 1)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        fed = {
            "s": np.asarray(rng.uniform(0.02, 0.06), np.float32),
            "z": np.asarray(rng.integers(0, 256), np.uint8),
        }
        if stored:
            fed["os"] = np.asarray(rng.uniform(0.02, 0.2), np.float32)
            fed["oz"] = np.asarray(rng.integers(0, 256), np.uint8)
        plan = fqfuse.compile(quantized_product(op, stored, {**scales, **fed}), target=target)
        x = {"x": floats(*plan.type("x").static_shape, seed=seed)}
        (expected,) = fqfuse.InferenceSession(plan, runtime, 1).run(None, x)
        assert session.run(None, {**x, **fed})[0].tobytes() == expected.tobytes()


@EACH_RUNTIME
@pytest.mark.parametrize("by_rows", [False, True], ids=["one scale", "scales by rows"])
@pytest.mark.parametrize("moved", ["Gemm transB", "Transpose", "Reshape of the source"])
def test_fed_parameters_of_operands_that_are_moved(moved: str, by_rows: bool, runtime: str) -> None:
    """Codes are moved, and decoded by their product: ten feeds against ten models of constants."""
    held = {"w": weights_of((24, 16), np.int8), "b": COLUMNS * 9}
    shapes = {"q": [3, 4, 2, 16], "s": [], "z": [], "ws": [24] if by_rows else []}

    def built(constants: dict[str, np.ndarray]) -> onnx.ModelProto:
        shape = [-1, 2, 16] if moved == "Reshape of the source" else [-1, 16]
        nodes = [
            node("DequantizeLinear", ["q", "s", "z"], ["d"]),
            node("Reshape", ["d", "shape"], ["x"]),
            node("DequantizeLinear", ["w", "ws"], ["v"], axis=0),
        ]
        if moved == "Gemm transB":
            nodes += [node("Gemm", ["x", "v", "b"], ["y"], transB=1)]
        else:
            nodes += [node("Transpose", ["v"], ["t"]), node("MatMul", ["x", "t"], ["y"])]
        return model(
            nodes,
            inputs={name: dims for name, dims in shapes.items() if name not in constants},
            constants={**held, "shape": np.array(shape), **constants},
            types={"q": TensorProto.UINT8, "z": TensorProto.UINT8},
        )

    plan = fqfuse.compile(built({}))
    (step,) = [step for step in plan.steps if step.primitive == "matmul"]
    assert plan.type(step.inputs[0]).dtype.value == "u8"
    assert plan.type(step.inputs[1]).dtype.value == "s8"
    session = fqfuse.InferenceSession(plan, runtime, 1)
    for seed in range(10):
        fed = drawn(np.uint8, seed)
        fed["ws"] = np.resize(COLUMNS, shapes["ws"]) * np.float32(1 + seed)
        q = {"q": weights_of(shapes["q"], np.uint8, seed)}
        alone = fqfuse.InferenceSession(fqfuse.compile(built(fed)), runtime, 1)
        (expected,) = alone.run(None, q)
        (found,) = session.run(None, {**q, **fed})
        assert found.tobytes() == expected.tobytes()


@EACH_RUNTIME
@pytest.mark.parametrize("read", [["a"], ["b"], ["a", "b"]])
def test_the_parts_of_what_a_fed_scale_decodes(read: list[str], runtime: str) -> None:
    """A part may be read by nothing."""
    nodes = [
        node("DequantizeLinear", ["q", "s", "z"], ["x"]),
        node("Split", ["x", "sizes"], ["a", "b"], axis=1),
    ]
    built = model(
        nodes,
        inputs={"q": [2, 5], "s": [], "z": []},
        constants={"sizes": np.array([2, 3])},
        outputs=read,
        types={"q": TensorProto.UINT8, "z": TensorProto.UINT8},
    )
    feeds = {"q": weights_of((2, 5), np.uint8), **drawn(np.uint8, 1)}
    found = fqfuse.InferenceSession(built, runtime).run(None, feeds)
    for one, expected in zip(found, run_ort(built, feeds), strict=True):
        np.testing.assert_array_equal(one, expected)


@EACH_RUNTIME
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_codes_by_a_fed_scale_are_onnx_runtimes_own(dtype: type, runtime: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = {"x": [64, 64], "s": [], "z": []}
    built = model(
        [node("QuantizeLinear", ["x", "s", "z"], ["y"])], inputs=inputs, types={"z": kind}
    )
    session = fqfuse.InferenceSession(fqfuse.compile(built), runtime)
    for seed in range(10):
        feeds = {"x": floats(64, 64, seed=seed), **drawn(dtype, seed)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], run_ort(built, feeds)[0])


@EACH_RUNTIME
def test_a_scale_that_is_decoded_itself(runtime: str) -> None:
    nodes = [
        node("DequantizeLinear", ["sq", "ss"], ["s"]),
        node("DequantizeLinear", ["q", "s", "z"], ["x"]),
        node("Relu", ["x"], ["y"]),
    ]
    proto = model(
        nodes,
        inputs={"q": ["N", 7], "sq": []},
        constants={"ss": np.float32(0.003), "z": np.uint8(120)},
        types={"q": TensorProto.UINT8, "sq": TensorProto.UINT8},
    )
    codes = np.arange(21, dtype=np.uint8).reshape(3, 7) * np.uint8(12)
    feeds = {"q": codes, "sq": np.asarray(5, np.uint8)}
    found = fqfuse.InferenceSession(proto, runtime).run(None, feeds)
    np.testing.assert_array_equal(found, run_ort(proto, feeds))


@EACH_RUNTIME
def test_a_weight_scale_of_infinity_beside_a_fed_zero_point(runtime: str) -> None:
    nodes = [
        node("DequantizeLinear", ["q", "s", "z"], ["x"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wx"]),
        node("MatMul", ["x", "wx"], ["y"]),
    ]
    proto = model(
        nodes,
        inputs={"q": [3, 16], "s": [], "wz": []},
        constants={
            "z": np.int8(3),
            "w": np.full((16, 24), 9, np.int8),
            "ws": np.float32(np.inf),
        },
        types={"q": TensorProto.INT8, "wz": TensorProto.INT8},
    )
    q = np.arange(48, dtype=np.int8).reshape(3, 16) + np.int8(4)
    feeds = {"q": q, "s": np.float32(0.1), "wz": np.asarray(7, np.int8)}
    found = fqfuse.InferenceSession(proto, runtime).run(None, feeds)
    np.testing.assert_array_equal(found, run_ort(proto, feeds))


@EACH_RUNTIME
def test_scales_that_alone_tell_the_columns_of_fed_weights(runtime: str) -> None:
    nodes = [
        node("DequantizeLinear", ["q", "s"], ["x"]),
        node("DequantizeLinear", ["w", "ws"], ["wx"], axis=1),
        node("Gemm", ["x", "wx", "b"], ["p"]),
        node("Neg", ["p"], ["y"]),
    ]
    proto = model(
        nodes,
        inputs={"q": [3, 4], "w": ["K", "M"], "b": ["B"]},
        constants={"s": np.float32(0.1), "ws": np.float32([0.1, 0.2, 0.3, 0.4, 0.5])},
        types={"q": TensorProto.INT8, "w": TensorProto.INT8},
    )
    feeds = {
        "q": weights_of((3, 4), np.int8),
        "w": weights_of((4, 5), np.int8),
        "b": floats(5),
    }
    (found,) = fqfuse.InferenceSession(proto, runtime).run(None, feeds)
    (expected,) = run_ort(proto, feeds)
    # four products of at most 12.8 * 64, added up in another order
    np.testing.assert_allclose(found, expected, rtol=0, atol=3200 * 2.0**-22)


@EACH_RUNTIME
def test_one_quantizer_for_several_products(runtime: str) -> None:
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    constants: dict[str, np.ndarray] = {}
    for name in "abc":
        constants[f"w{name}"] = weights_of((16, 8), np.int8, seed=ord(name))
        constants[f"s{name}"] = np.float32(0.01 * ord(name))
        nodes += [
            node("MatMulInteger", ["q", f"w{name}", "z"], [f"i{name}"]),
            node("Cast", [f"i{name}"], [f"f{name}"], to=FLOAT),
            node("Mul", ["s", f"s{name}"], [f"m{name}"]),
            node("Mul", [f"f{name}", f"m{name}"], [f"y{name}"]),
        ]
    built = model(nodes, inputs={"x": [3, 16]}, outputs=["ya", "yb", "yc"], constants=constants)
    plan = fqfuse.compile(built)
    assert len(source_at_run_time(plan)) == 3
    assert sum(step.op == "DynamicRange" for step in plan.steps) == 1
    x = floats(3, 16)
    found = fqfuse.InferenceSession(plan, runtime).run(None, {"x": x})
    for one, other in zip(found, run_ort(built, {"x": x}), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@EACH_RUNTIME
@pytest.mark.parametrize("zero", [False, True])
def test_what_onnx_runtime_fuses_dynamic_quantization_into(zero: bool, runtime: str) -> None:
    constants = {"w": MATRIX, "ws": COLUMNS, "b": COLUMNS * 7}
    right = ["w", "ws", "wz" if zero else "", "b"]
    if zero:
        constants["wz"] = np.zeros(24, np.int8)
    dynamic_product = node("DynamicQuantizeMatMul", ["x", *right], domain="com.microsoft")
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node(
            "MatMulIntegerToFloat",
            ["q", "w", "s", "ws", "z", right[2], "b"],
            ["y"],
            domain="com.microsoft",
        ),
    ]
    for written in ([dynamic_product], nodes):
        built = model(
            written, inputs={"x": [5, 16]}, constants=constants, domains={"com.microsoft": 1}
        )
        plan = fqfuse.compile(built)
        assert len(source_at_run_time(plan)) == 1
        x = {"x": floats(5, 16)}
        (found,) = fqfuse.InferenceSession(plan, runtime).run(None, x)
        (expected,) = run_ort(built, x)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@EACH_RUNTIME
def test_saved_and_loaded(runtime: str, tmp_path) -> None:
    plan = fqfuse.compile(CASES["matmul by columns"])
    fqfuse.save_plan(plan, tmp_path / "p.onnx")
    loaded = fqfuse.load_plan(tmp_path / "p.onnx")
    assert loaded == plan
    x = {"x": floats(3, 16)}
    first, second = (fqfuse.InferenceSession(p, runtime).run(None, x)[0] for p in (plan, loaded))
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize(
    ("target", "runtime"),
    [("onednn-v2", "numpy"), ("onednn-v2", "onednn"), ("unified", "numpy")],
)
@pytest.mark.parametrize("case", CASES)
def test_every_target_takes_computed_parameters(case: str, target: str, runtime: str) -> None:
    plan = fqfuse.compile(CASES[case], target=target)
    (step,) = parameterized(plan)
    assert not any("RunTimeDequantize" in other.primitive for other in plan.steps)
    if target == "onednn-v2":  # which has no scales of arguments
        assert isinstance(step.attr.post_ops[0], Binary)
        assert step.attr.post_ops[0].algorithm == "mul"
    x = floats(*(2 if isinstance(dim, str) else dim for dim in plan.type("x").shape))
    (expected,) = run_ort(CASES[case], {"x": x})
    session = fqfuse.InferenceSession(plan, runtime)
    (found,) = session.run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
    if runtime == "onednn":
        (place,) = [p for p in session.placement() if p.step.name == step.name]
        assert place.runtime == "onednn", place.reason


@pytest.mark.parametrize("case", CASES)
def test_converted_from_onednn_2(case: str) -> None:
    plan = fqfuse.compile(CASES[case], target="onednn-v2")
    x = floats(*(2 if isinstance(dim, str) else dim for dim in plan.type("x").shape))
    (expected,) = fqfuse.InferenceSession(plan, "numpy").run(None, {"x": x})
    for how in ("mechanical", "semantic"):
        converted = fqfuse.convert(plan, how=how)
        (found,) = fqfuse.InferenceSession(converted, "numpy").run(None, {"x": x})
        assert found.tobytes() == expected.tobytes()


@EACH_RUNTIME
def test_a_result_in_s32_is_requantized_by_its_own_range(runtime: str) -> None:
    """Dynamic quantization as oneDNN's guide has it: the result in s32, its minimum and maximum, a
    scale from these, and codes by that scale.
    """
    nodes = [
        node("MatMulInteger", ["q", "w", "z"], ["i"], name="product"),
        node("Cast", ["i"], ["f"], to=FLOAT),
        node("DynamicQuantizeLinear", ["f"], ["y", "s", "y_zero"], name="range"),
    ]
    built = model(
        nodes,
        inputs={"q": ["N", 16]},
        outputs=["i", "y", "s", "y_zero"],
        constants={"w": MATRIX, "z": np.uint8(121)},
        types={"q": TensorProto.UINT8, "i": TensorProto.INT32},
    )
    session = fqfuse.InferenceSession(fqfuse.compile(built), runtime)
    for seed in range(4):
        q = weights_of((3 + seed, 16), np.uint8, seed)
        sums = (q.astype(np.int64) - 121) @ MATRIX.astype(np.int64)
        found = dict(zip(("i", "y", "s", "z"), session.run(None, {"q": q}), strict=True))
        np.testing.assert_array_equal(found["i"], sums)
        low, high = min(sums.min(), 0), max(sums.max(), 0)
        assert float(found["s"]) == pytest.approx((high - low) / 255, rel=2.0**-23)
        assert abs(int(found["z"]) - -low / float(found["s"])) <= 0.5 + 1e-3
        decoded = (found["y"].astype(np.float64) - int(found["z"])) * float(found["s"])
        # half a step, and what f32 rounds
        assert np.abs(decoded - np.clip(sums, low, high)).max() <= float(found["s"]) * 0.501 + 1e-3
        assert {0, 255} <= set(found["y"].reshape(-1).tolist()), "the whole range of the codes"


@pytest.mark.parametrize("runtime", ["numpy", "onednn"])
@pytest.mark.parametrize("scale_type", [np.float16, np.float32])
@pytest.mark.parametrize("kind", [TensorProto.UINT8, TensorProto.UINT4, TensorProto.INT4])
@pytest.mark.parametrize("zero", ["absent", "constant", "fed"])
def test_codes_of_4_bits_and_half_floats_by_a_fed_scale(
    zero: str, kind: int, scale_type: type, runtime: str
) -> None:
    """x/s in f32, and rounded half to even, as by constant scales."""
    low, high = {TensorProto.UINT8: (0, 255), TensorProto.UINT4: (0, 15)}.get(kind, (-8, 7))
    point = 0 if zero == "absent" else 3
    real = helper.np_dtype_to_tensor_dtype(np.dtype(scale_type))
    names = ["s"] if zero == "absent" else ["s", "z"]
    typed = {"output_dtype": kind} if zero == "absent" else {}
    built = model(
        [
            node("QuantizeLinear", ["x", *names], ["q"], **typed),
            node("DequantizeLinear", ["q", *names], ["y"]),
        ],
        inputs={"x": [3, 50], "s": [], **({"z": []} if zero == "fed" else {})},
        types={"x": real, "s": real, "z": kind, "y": real},
        opset=21,
    )
    if zero == "constant":
        built.graph.initializer.append(helper.make_tensor("z", kind, [], [point]))
    scale = scale_type(0.3)
    x = (np.random.default_rng(3).uniform(low - 9, high + 9, (3, 50)) * scale).astype(scale_type)
    feeds = {"x": x, "s": np.asarray(scale)}
    if zero == "fed":
        feeds["z"] = np.asarray(point, np.int8 if low else np.uint8)
    (found,) = fqfuse.InferenceSession(fqfuse.compile(built), runtime).run(None, feeds)
    assert found.dtype == scale_type
    codes = np.clip(np.rint(x.astype(np.float32) / np.float32(scale)) + point, low, high)
    expected = ((codes - point) * np.float32(scale)).astype(scale_type)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("runtime", ["numpy", "onednn"])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("weights_fed", [False, True])
@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
def test_a_deconvolution_by_parameters_of_a_run(
    target: str, taken: bool, weights_fed: bool, group: int, runtime: str
) -> None:
    """In int8: `taken`: by DynamicQuantizeLinear, else fed; padding is the fed zero point's 0."""
    rng = np.random.default_rng([taken, weights_fed, group])
    inputs: dict[str, list[int | str]] = {"x": ["N", 8, "H", 6]}
    scales = rng.uniform(0.005, 0.02, () if group == 2 else (3,)).astype(np.float32)
    constants = {
        "w": weights_of((8, 3, 3, 2), np.int8),
        "b": rng.standard_normal(3 * group).astype(np.float32),
    }
    feeds = {"s": np.float32(0.03), "z": np.uint8(111)}
    first = node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    if not taken:
        inputs |= {"s": [], "z": []}
        first = node("QuantizeLinear", ["x", "s", "z"], ["q"])
    if weights_fed:
        inputs["ws"], feeds["ws"] = list(scales.shape), scales
    else:
        constants["ws"] = scales
    more = {"group": group, "pads": [1, 1, 0, 1], "strides": [2, 1]}
    built = model(
        [
            first,
            node("DequantizeLinear", ["q", "s", "z"], ["d"]),
            node("DequantizeLinear", ["w", "ws"], ["v"], axis=1),
            node("ConvTranspose", ["d", "v", "b"], ["p"], **more),
            node("Relu", ["p"], ["y"]),
        ],
        inputs=inputs,
        constants=constants,
        types={"z": TensorProto.UINT8},
    )
    plan = fqfuse.compile(built, target=target)
    (step,) = [step for step in plan.steps if "onv" in step.primitive]
    assert step.primitive == "deconvolution"
    assert plan.type(step.arg("src")).dtype.value == "u8"
    session = fqfuse.InferenceSession(plan, runtime)
    for size in (4, 7):
        x = floats(2, 8, size, 6, seed=size)
        given = {"x": x} | {name: feeds[name] for name in inputs if name != "x"}
        (found,), (expected,) = session.run(None, given), run_ort(built, given)
        # sums of 48 products in f32 there, exact here
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
def test_a_deconvolution_in_groups_by_fed_scales_of_each_groups_outputs(target: str) -> None:
    """It stays in f32: the primitive has a scale for each output channel, the model one for each of a
    group's.
    """
    built = model(
        [
            node("DequantizeLinear", ["q", "s"], ["d"]),
            node("DequantizeLinear", ["w", "ws"], ["v"], axis=1),
            node("ConvTranspose", ["d", "v"], ["y"], group=2),
        ],
        inputs={"q": [1, 2, 4], "s": [], "ws": [3]},
        constants={"w": weights_of((2, 3, 2), np.int8)},
        types={"q": TensorProto.UINT8},
    )
    feeds = {
        "q": weights_of((1, 2, 4), np.uint8),
        "s": np.float32(0.1),
        "ws": np.float32([0.1, 0.2, 0.3]),
    }
    (found,) = fqfuse.InferenceSession(fqfuse.compile(built, target=target)).run(None, feeds)
    np.testing.assert_allclose(found, run_ort(built, feeds)[0], rtol=1e-6)
