"""Models of half floats: in f32 between their inputs and outputs, with quantizers fused as in f32."""

from __future__ import annotations

import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.onnx_cases import model, node, random, run_ort

import fqfuse
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.constants import LARGE, Halves, as_held
from fqfuse.ir.ops.spec import same_bits
from fqfuse.ir.types import DType

KINDS = {
    "f16": (np.float16, TensorProto.FLOAT16),
    "bf16": (ml_dtypes.bfloat16, TensorProto.BFLOAT16),
}
HALVES = (DType.F16, DType.BF16)


def tolerance(kind: str) -> float:
    """Roundings of a few results, each by half a unit in the last place, of numbers about 1."""
    return 8 * float(ml_dtypes.finfo(KINDS[kind][0]).eps)


def quantized_block(kind: str, *, half: bool = True) -> onnx.ModelProto:
    """A quantized convolution and its activation between quantizers whose scales are half floats."""
    dtype, element = KINDS[kind] if half else (np.float32, TensorProto.FLOAT)
    s, ws = (np.asarray(v).astype(KINDS[kind][0]).astype(dtype) for v in (0.02, 0.01))
    codes = np.random.default_rng(0).integers(-127, 128, (8, 4, 3, 3)).astype(np.int8)
    constants = {"s": s, "z": np.uint8(128), "ws": ws, "wz": np.int8(0), "w": codes}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["v"]),
        node("Conv", ["d", "v"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("QuantizeLinear", ["r", "s", "z"], ["t"]),
        node("DequantizeLinear", ["t", "s", "z"], ["y"]),
    ]
    return model(
        nodes, inputs={"x": [1, 4, 6, 6]}, constants=constants, opset=21, types={"x": element}
    )


@pytest.mark.parametrize("kind", KINDS)
def test_quantizers_fuse_as_in_f32(kind: str) -> None:
    half, plain = (fqfuse.compile(quantized_block(kind, half=h)) for h in (True, False))
    kinds = [[step.primitive for step in plan.steps] for plan in (half, plain)]
    # what decodes the codes of the last store may be a step in front of the Cast
    moves = {"onnx.Cast", "reorder"}
    assert [{*names} - moves for names in kinds] == [{"convolution"}] * 2
    assert [names.count("onnx.Cast") for names in kinds] == [2, 0]
    x = random([1, 4, 6, 6]).astype(KINDS[kind][0])
    for backend in ("numpy", "onednn"):
        (found,) = fqfuse.InferenceSession(half, backend).run(None, {"x": x})
        (wanted,) = fqfuse.InferenceSession(plain, backend).run(None, {"x": x.astype(np.float32)})
        np.testing.assert_array_equal(
            found.astype(np.float32), wanted.astype(KINDS[kind][0]).astype(np.float32)
        )


def attention(kind: str) -> onnx.ModelProto:
    """What is in a transformer's block: products, a softmax, a normalization, constants and a mask."""
    dtype, element = KINDS[kind]
    constants = {
        **{f"w{i}": (random([16, 16], i) / 4).astype(dtype) for i in range(3)},
        "gamma": random([16], 4).astype(dtype),
        "beta": random([16], 5).astype(dtype),
        "low": np.asarray(-1e4).astype(dtype),
    }
    nodes = [
        *(node("MatMul", ["x", f"w{i}"], [f"p{i}"]) for i in range(3)),
        node("Transpose", ["p1"], ["k"], perm=[0, 2, 1]),
        node("MatMul", ["p0", "k"], ["s"]),
        node("Where", ["mask", "s", "low"], ["m"]),
        node("Softmax", ["m"], ["a"], axis=-1),
        node("MatMul", ["a", "p2"], ["c"]),
        node("Add", ["c", "x"], ["r"]),
        node("LayerNormalization", ["r", "gamma", "beta"], ["y"], axis=-1),
    ]
    types = {"x": element, "mask": TensorProto.BOOL}
    inputs = {"x": [2, 5, 16], "mask": [5, 5]}
    return model(nodes, inputs=inputs, constants=constants, opset=21, types=types)


def test_products_and_normalizations_are_primitives() -> None:
    proto = attention("f16")
    feeds = {"x": random([2, 5, 16]).astype(np.float16), "mask": np.tri(5, dtype=np.bool_)}
    (wanted,) = run_ort(proto, feeds)
    plan = fqfuse.compile(proto)
    kinds = [step.primitive for step in plan.steps]
    assert kinds.count("matmul") == 5
    assert {"softmax", "layer_normalization"} <= set(kinds)
    for backend in ("numpy", "onednn"):
        (found,) = fqfuse.InferenceSession(plan, backend).run(None, feeds)
        assert found.dtype == np.float16
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance("f16") * 3)


def test_bf16_runs_where_onnxruntime_has_no_kernel() -> None:
    """ONNX Runtime computes no bf16 on a CPU: the judge is the same model in f16, of values that both have."""
    kinds = {name: attention(name) for name in KINDS}
    x = random([2, 5, 16]).astype(ml_dtypes.bfloat16)
    mask = np.tri(5, dtype=np.bool_)
    (wanted,) = run_ort(kinds["f16"], {"x": x.astype(np.float16), "mask": mask})
    for backend in ("numpy", "onednn"):
        session = fqfuse.InferenceSession(kinds["bf16"], backend)
        (found,) = session.run(None, {"x": x, "mask": mask})
        far = np.abs(found.astype(np.float32) - wanted.astype(np.float32)).max()
        assert far < tolerance("bf16") * 3  # the weights are rounded, too


def test_foreign_operators_compute_in_f32_too() -> None:
    """NumPy, by which ONNX's evaluator computes a determinant, has no such function of half floats."""
    nodes = [
        node("Add", ["x", "x"], ["a"]),
        node("Det", ["a"], ["d"]),
        node("Mul", ["d", "c"], ["y"]),
    ]
    types = {"x": TensorProto.FLOAT16}
    inputs, constants = {"x": [2, 3, 3]}, {"c": np.float16(3)}
    proto = model(nodes, inputs=inputs, constants=constants, types=types)
    x = random([2, 3, 3]).astype(np.float16)
    (found,) = fqfuse.InferenceSession(proto).run(None, {"x": x})
    wanted = np.linalg.det(2 * x.astype(np.float64)) * 3
    np.testing.assert_allclose(found, wanted, rtol=tolerance("f16"), atol=tolerance("f16"))


REFERENCE = {
    "ScatterND": (["data", "places", "x"], {}, [1, 4]),
    "OneHot": (["ids", "depth", "pair"], {}, [1, 4]),
    "GridSample": (["image", "x"], {"mode": "nearest"}, [1, 3, 3, 2]),
}
"""Operator that ONNX's evaluator runs -> its inputs, of which x alone is fed, its attributes, and the
sizes of x."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", REFERENCE)
def test_constants_of_foreign_operators_tell_their_own_type(op: str, kind: str) -> None:
    """Each gives numbers that it reads: those of f32 to the bit, in the type that ONNX infers."""
    reads, attributes, shape = REFERENCE[op]
    dtype, element = KINDS[kind]

    def built(dtype: type, element: int) -> onnx.ModelProto:
        constants = {
            "data": random([3, 4], 1).astype(KINDS[kind][0]).astype(dtype),
            "image": random([1, 2, 4, 4], 2).astype(KINDS[kind][0]).astype(dtype),
            "pair": np.asarray([0.5, 2]).astype(dtype),
            "places": np.int64([[1]]),
            "ids": np.int64([2, 0]),
            "depth": np.int64(5),
        }
        nodes = [node(op, reads, ["y"], **attributes), node("Identity", ["x"], ["z"])]
        used = {name: data for name, data in constants.items() if name in reads}
        types = {"x": element}
        outputs = ["y", "z"]
        return model(
            nodes, inputs={"x": shape}, outputs=outputs, constants=used, types=types, opset=22
        )

    half, plain = built(dtype, element), built(np.float32, TensorProto.FLOAT)
    x = (random(shape, 3) / 2).astype(dtype)
    for backend in ("numpy", "onednn"):
        session = fqfuse.InferenceSession(half, backend)
        wide = fqfuse.InferenceSession(plain, backend).run(None, {"x": x.astype(np.float32)})
        found = session.run(None, {"x": x})
        assert [array.dtype for array in found] == [dtype, dtype]
        words = "tensor(float16)" if kind == "f16" else "tensor(bfloat16)"
        assert [output.type for output in session.get_outputs()] == [words] * 2
        np.testing.assert_array_equal(found[0].astype(np.float32), wide[0])


def test_what_a_body_reads_and_writes_stays_half() -> None:
    """Constants inside a body are half floats, and cannot be added to f32."""
    one = helper.make_node("Constant", [], ["one"], value=helper.make_tensor("o", 10, [], [1.0]))
    bodies = [
        helper.make_graph(
            [one, helper.make_node(op, ["a", "one"], ["out"])],
            op,
            [],
            [helper.make_tensor_value_info("out", TensorProto.FLOAT16, [3])],
        )
        for op in ("Add", "Sub")
    ]
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("If", ["c"], ["f"], then_branch=bodies[0], else_branch=bodies[1]),
        node("Neg", ["f"], ["y"]),
    ]
    types = {"x": TensorProto.FLOAT16, "c": TensorProto.BOOL}
    proto = model(nodes, inputs={"x": [3], "c": []}, types=types)
    graph = graph_from_onnx(proto)
    (made,) = (n for n in graph.nodes() if n.op == "Onnx")
    assert [graph.type(v).dtype for v in made.inputs] == [DType.BOOL, DType.F16]
    assert graph.type(made.output).dtype is DType.F16
    for condition in (False, True):
        feeds = {"x": np.float16([1, 2, 3]), "c": np.asarray(condition)}
        (found,) = fqfuse.InferenceSession(proto).run(None, feeds)
        np.testing.assert_array_equal(found, [0, 1, 2] if condition else [2, 3, 4])


def test_nothing_in_between_is_half() -> None:
    graph = graph_from_onnx(attention("f16"))
    half = {value for value, type_ in graph.values.items() if type_.dtype in HALVES}
    assert half == {"x", "y"}
    assert [n.op for n in graph.nodes()].count("Cast") == 2
    told = [d for d in graph.decisions if d.rule == "import_half_floats"]
    assert len(told) == 1


def test_casts_between_half_floats_and_f32_are_gone() -> None:
    nodes = [
        node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        node("Relu", ["h"], ["r"]),
        node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
        node("Neg", ["f"], ["y"]),
    ]
    graph = graph_from_onnx(model(nodes, inputs={"x": [3]}))
    assert [n.op for n in graph.nodes()] == ["Relu", "Neg"]


def test_an_input_that_is_an_output_is_left_alone() -> None:
    proto = model(
        [node("Identity", ["x"], ["y"])], inputs={"x": [3]}, types={"x": TensorProto.FLOAT16}
    )
    x = np.float16([1, 2, 65504])
    (found,) = fqfuse.InferenceSession(proto).run(None, {"x": x})
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, x)
    proto.graph.output.append(helper.make_tensor_value_info("x", TensorProto.FLOAT16, [3]))
    found = fqfuse.InferenceSession(proto).run(None, {"x": x})
    np.testing.assert_array_equal(found, [x, x])


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
@pytest.mark.parametrize("kind", KINDS)
def test_large_weights_are_those_of_f32_wherever_one_looks(
    kind: str, target: str, tmp_path: Path
) -> None:
    dtype, _ = KINDS[kind]
    draw = np.random.default_rng(3)
    shapes = {"table": (64, 256), "w": (256, 256), "v": (256, 256), "b": (256,)}
    halves = {name: (draw.standard_normal(s) / 16).astype(dtype) for name, s in shapes.items()}
    nodes = [
        node("Gather", ["table", "ids"], ["x"]),
        node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        node("Relu", ["h"], ["r"]),
        node("MatMul", ["r", "v"], ["m"]),
        node("Cast", ["m"], ["y"], to=TensorProto.FLOAT),
    ]

    def built(constants: dict[str, np.ndarray]) -> fqfuse.Plan:
        types = {"ids": TensorProto.INT64}
        proto = model(
            nodes, inputs={"ids": [5]}, outputs=["y"], constants=constants, types=types, opset=21
        )
        return fqfuse.compile(proto, target=target)

    plan = built(halves)
    large = [d for d in as_held(plan.constants).values() if d.nbytes >= LARGE]
    assert len(large) == 3
    assert all(isinstance(data, Halves) for data in large)
    plain = built({name: data.astype(np.float32) for name, data in halves.items()})
    wide = {name: np.ascontiguousarray(data) for name, data in plan.constants.items()}
    assert wide.keys() == plain.constants.keys()
    assert all(
        same_bits(data, np.ascontiguousarray(plain.constants[n])) for n, data in wide.items()
    )
    assert {name: plan.type(name) for name in wide} == {name: plain.type(name) for name in wide}

    fqfuse.save_plan(plan, tmp_path / "plan.onnx")
    loaded = fqfuse.load_plan(tmp_path / "plan.onnx")
    copied = pickle.loads(pickle.dumps(plan))  # noqa: S301
    assert loaded == plan == copied
    ids = np.int64([0, 63, 5, 5, 17])
    for backend in ("numpy", "onednn") if target != "unified" else ("numpy",):
        (wanted,) = fqfuse.InferenceSession(plain, backend).run(None, {"ids": ids})
        for other in (plan, loaded, copied):
            session = fqfuse.InferenceSession(other, backend)
            for _ in range(2):
                np.testing.assert_array_equal(session.run(None, {"ids": ids})[0], wanted)


FOLDED = {
    "Conv": ([2, 4, 6, 5], {"w": random([3, 4, 3, 3]), "b": random([3])}, {"pads": [1, 1, 1, 1]}),
    "ConvTranspose": ([2, 4, 6, 5], {"w": random([4, 3, 2, 2]), "b": random([3])}, {}),
    "Gemm": ([2, 4], {"w": random([3, 4]), "b": random([3])}, {"transB": 1}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", FOLDED)
def test_layers_into_which_a_normalization_was_folded(op: str, kind: str) -> None:
    """PyTorch's exporter leaves weights and bias of f32 beside bf16 there: they count as they are."""
    dtype, element = KINDS[kind]
    shape, constants, attrs = FOLDED[op]
    layer = [node(op, ["x", "w", "b"], ["y"], **attrs)]
    half, wide = (
        model(layer, inputs={"x": shape}, constants=constants, opset=22, types={"x": of})
        for of in (element, TensorProto.FLOAT)
    )
    x = random(shape).astype(dtype)
    for backend in ("numpy", "onednn"):
        (found,) = fqfuse.InferenceSession(half, backend).run(None, {"x": x})
        (wanted,) = fqfuse.InferenceSession(wide, backend).run(None, {"x": x.astype(np.float32)})
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, wanted.astype(dtype))


def test_a_layer_of_halves_with_computed_weights_of_f32_is_refused() -> None:
    layer = [node("Conv", ["x", "w"], ["y"])]
    types = {"x": TensorProto.BFLOAT16, "w": TensorProto.FLOAT}
    proto = model(
        layer, inputs={"x": [1, 4, 6, 5], "w": [3, 4, 3, 3]}, constants={}, opset=22, types=types
    )
    with pytest.raises(fqfuse.InvalidModel, match="weights must have the element type of x"):
        fqfuse.compile(proto)
