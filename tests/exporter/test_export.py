"""`fqfuse.export`: what is written fuses in ONNX Runtime, compiles again to as much int8, and computes
the same; what cannot be written is refused.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.judge import ort_session
from support.onnx_cases import model, optimized_operators, run_ort
from support.packed_models import Scheme
from support.packed_models import network as packed_network

import fqfuse
from fqfuse.exporter import FORMS
from fqfuse.exporter.file import save_model
from fqfuse.models.digits import FORMS as DIGITS
from fqfuse.models.digits import digits_model_path, digits_test_set
from fqfuse.plan.file import files_of
from fqfuse.plan.types import runs_in_int8

RANDOM = np.random.default_rng


def int8_steps(source: str | Path | onnx.ModelProto) -> int:
    plan = fqfuse.compile(source)
    return sum(runs_in_int8(plan, step) for step in plan.steps)


# -- the digits models, in every dialect -----------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dialect", DIGITS)
def test_digits_are_classified_as_before(dialect: str, form: str, tmp_path: Path) -> None:
    path = digits_model_path(dialect)
    exported = fqfuse.export(path, tmp_path / "out.onnx", to=form)
    images, _ = digits_test_set()
    (before,) = fqfuse.InferenceSession(path, "numpy").run(None, {"image": images})
    (after,) = run_ort(exported.model, {"image": images})
    assert after.shape == before.shape
    # of ties in eleven layers of codes: a logit moves by a few codes at most, and never a class
    # that was not close to another
    assert np.mean(before.argmax(1) == after.argmax(1)) >= 0.99
    assert np.abs(before - after).max() <= 0.05 * np.abs(before).max()


@pytest.mark.parametrize("dialect", DIGITS)
def test_what_was_written_compiles_to_as_many_int8_steps(dialect: str, tmp_path: Path) -> None:
    path = digits_model_path(dialect)
    exported = fqfuse.export(path, tmp_path / "out.onnx", to="qdq")
    assert int8_steps(exported.model) >= int8_steps(path)


# -- small networks --------------------------------------------------------------------------------


def codes_of(name: str, data: np.ndarray, axis: int) -> tuple[list[onnx.NodeProto], list]:
    """Weights as s8 codes with a scale for each index of an axis, behind a DequantizeLinear."""
    rest = tuple(i for i in range(data.ndim) if i != axis)
    scales = (np.abs(data).max(axis=rest) / 127).astype(np.float32)
    shaped = scales.reshape([-1 if i == axis else 1 for i in range(data.ndim)])
    codes = np.rint(data / shaped).astype(np.int8)
    tensors = [
        numpy_helper.from_array(codes, f"{name}_codes"),
        numpy_helper.from_array(scales, f"{name}_scale"),
        numpy_helper.from_array(np.zeros(scales.size, np.int8), f"{name}_zero"),
    ]
    inputs = [tensor.name for tensor in tensors]
    return [helper.make_node("DequantizeLinear", inputs, [name], axis=axis)], tensors


def quantized(
    name: str, source: str, scale: object, zero: object, **attrs: int
) -> tuple[list, list]:
    """A quantizer: `name` is the decoded value."""
    tensors = [
        numpy_helper.from_array(np.asarray(scale, np.float32), f"{name}_scale"),
        numpy_helper.from_array(np.asarray(zero), f"{name}_zero"),
    ]
    parameters = [tensor.name for tensor in tensors]
    nodes = [
        helper.make_node("QuantizeLinear", [source, *parameters], [f"{name}_q"], **attrs),
        helper.make_node("DequantizeLinear", [f"{name}_q", *parameters], [name], **attrs),
    ]
    return nodes, tensors


def network(*parts: tuple[list, list] | onnx.NodeProto, x: tuple, y: tuple) -> onnx.ModelProto:
    nodes, tensors = [], []
    for part in parts:
        if isinstance(part, onnx.NodeProto):
            nodes.append(part)
        else:
            nodes += part[0]
            tensors += part[1]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, y)],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def depthwise_pair() -> onnx.ModelProto:
    """As NNCF writes a MobileNet: a scale for each channel in front of the depthwise convolution."""
    random = RANDOM(0)
    relu6 = [numpy_helper.from_array(np.float32(bound), f"b{bound}") for bound in (0, 6)]
    return network(
        quantized("xq", "x", 0.05, np.uint8(120)),
        codes_of("w1", random.normal(size=(8, 4, 1, 1)).astype(np.float32), 0),
        codes_of("w2", random.normal(size=(8, 1, 3, 3)).astype(np.float32), 0),
        ([helper.make_node("Conv", ["xq", "w1", "b"], ["c1"])], []),
        ([], [numpy_helper.from_array(random.normal(size=8).astype(np.float32), "b"), *relu6]),
        helper.make_node("Clip", ["c1", "b0", "b6"], ["r1"]),
        quantized("q1", "r1", np.linspace(0.005, 6 / 255, 8), np.zeros(8, np.uint8), axis=1),
        helper.make_node("Conv", ["q1", "w2"], ["c2"], group=8, pads=[1, 1, 1, 1]),
        quantized("y", "c2", 0.1, np.uint8(128)),
        x=("N", 4, "H", 6),
        y=("N", 8, "H", 6),
    )


def dense(behind: bool, rows: int | str | None) -> onnx.ModelProto:
    """A product with a bias, as NNCF writes a transformer's, or a classifier's (no rows); with a
    quantizer behind, or f32.
    """
    random = RANDOM(1)
    return network(
        quantized("xq", "x", 0.02, np.int8(-3)),
        codes_of("w", random.normal(size=(16, 12)).astype(np.float32), 1),
        ([], [numpy_helper.from_array(random.normal(size=12).astype(np.float32), "b")]),
        helper.make_node("MatMul", ["xq", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a" if behind else "y"]),
        *([quantized("y", "a", 0.07, np.int8(5))] if behind else []),
        x=(2, rows, 16) if rows else (2, 16),
        y=(2, rows, 12) if rows else (2, 12),
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_scale_for_each_channel_becomes_one(form: str, tmp_path: Path) -> None:
    source = depthwise_pair()
    exported = fqfuse.export(source, tmp_path / "out.onnx", to=form)
    found = optimized_operators(exported.model, tmp_path)
    assert found["QLinearConv"] == 2
    assert not found["Conv"]
    assert not found["Clip"]  # 6 is the last code of the channel with the largest scale, or beyond
    feeds = {"x": RANDOM(2).normal(size=(2, 4, 5, 6)).astype(np.float32) * 3}
    (before,), (after,) = run_ort(source, feeds), run_ort(exported.model, feeds)
    steps = np.rint(np.abs(before - after) / 0.1)
    assert steps.max() <= 1  # a tie in front of the second convolution, or behind it
    assert steps.mean() < 0.01
    sizes = [
        dim.dim_param or dim.dim_value
        for dim in exported.model.graph.input[0].type.tensor_type.shape.dim
    ]
    assert sizes == ["N", 4, "H", 6]


@pytest.mark.parametrize(
    ("form", "behind", "rows", "wanted"),
    [
        ("qdq", True, 7, "QGemm"),
        ("qdq", True, "S", "MatMulIntegerToFloat"),  # it makes a Gemm of known sizes only
        ("qdq", False, 7, "MatMulIntegerToFloat"),
        ("qdq", False, None, "MatMulIntegerToFloat"),
        ("qoperator", True, "S", "QGemm"),
        ("qoperator", False, "S", "MatMulIntegerToFloat"),
    ],
)
def test_products_with_a_bias_stay_on_codes(
    form: str, behind: bool, rows: int | str | None, wanted: str, tmp_path: Path
) -> None:
    source = dense(behind, rows)
    exported = fqfuse.export(source, tmp_path / "out.onnx", to=form)
    found = optimized_operators(exported.model, tmp_path)
    assert found[wanted] == 1, found
    assert not found["Gemm"]
    assert not found["MatMul"]
    feeds = {"x": RANDOM(3).normal(size=(2, 7, 16) if rows else (2, 16)).astype(np.float32)}
    (before,), (after,) = run_ort(source, feeds), run_ort(exported.model, feeds)
    # behind a quantizer one step, at a tie; f32 sums in another order
    assert np.abs(before - after).max() <= (0.0701 if behind else 1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_signed_residuals_are_added_on_codes(form: str, tmp_path: Path) -> None:
    random = RANDOM(4)
    source = network(
        quantized("xq", "x", 0.05, np.uint8(0)),
        codes_of("w", random.normal(size=(4, 4, 1, 1)).astype(np.float32), 0),
        helper.make_node("Conv", ["xq", "w"], ["c"]),
        quantized("cq", "c", 0.06, np.int8(0)),
        helper.make_node("Add", ["cq", "xq"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        quantized("y", "r", 0.07, np.uint8(0)),
        x=(1, 4, 5, 5),
        y=(1, 4, 5, 5),
    )
    exported = fqfuse.export(source, tmp_path / "out.onnx", to=form)
    found = optimized_operators(exported.model, tmp_path)
    assert (found["QLinearConv"], found["QLinearAdd"]) == (1, 1), found
    feeds = {"x": np.abs(random.normal(size=(1, 4, 5, 5))).astype(np.float32) * 5}
    (before,), (after,) = run_ort(source, feeds), run_ort(exported.model, feeds)
    assert np.abs(before - after).max() <= 0.0701  # a step, at a tie


def dense_block() -> onnx.ModelProto:
    """As ONNX Runtime's quantizer writes a DenseNet: concatenations of three scales, each behind it
    with a quantizer, a normalization and a convolution of its own.
    """
    random = RANDOM(10)
    parts: list = [quantized("a0", "x", 0.05, np.uint8(128))]
    for index in (1, 2):
        joined, channels = f"j{index}", 4 * index
        norm = {
            "s": random.uniform(0.5, 2, channels),
            "b": random.normal(size=channels),
            "m": random.normal(size=channels),
            "v": random.uniform(0.5, 2, channels),
        }
        weights = random.normal(size=(4, channels, 1, 1)).astype(np.float32)
        inputs = [f"a{i}" for i in range(index)]
        parts += [
            helper.make_node("Concat", inputs, [joined], axis=1),
            quantized(f"{joined}q", joined, 0.04 + index / 100, np.uint8(120)),
            (
                [],
                [
                    numpy_helper.from_array(data.astype(np.float32), f"{name}{index}")
                    for name, data in norm.items()
                ],
            ),
            helper.make_node(
                "BatchNormalization",
                [f"{joined}q", *(f"{name}{index}" for name in norm)],
                [f"n{index}"],
            ),
            quantized(f"n{index}q", f"n{index}", 0.06, np.uint8(110)),
            codes_of(f"w{index}", weights, 0),
            helper.make_node("Conv", [f"n{index}q", f"w{index}"], [f"c{index}"]),
            quantized(f"a{index}", f"c{index}", 0.03 * index, np.uint8(100)),
        ]
    parts += [
        helper.make_node("Concat", ["a0", "a1", "a2"], ["j3"], axis=1),
        quantized("y", "j3", 0.08, np.uint8(120)),
    ]
    return network(*parts, x=(1, 4, 5, 5), y=(1, 12, 5, 5))


@pytest.mark.parametrize("form", FORMS)
def test_a_dense_block_computes_on_codes(form: str, tmp_path: Path) -> None:
    source = dense_block()
    exported = fqfuse.export(source, tmp_path / "out.onnx", to=form)
    before, after = (
        optimized_operators(source, tmp_path),
        optimized_operators(exported.model, tmp_path),
    )
    wanted = ("QLinearConv", "QLinearConcat", "BatchNormalization")
    assert [after[op] for op in wanted] == [4, 3, 0], after  # normalizations are convolutions
    assert sum(after.values()) <= sum(before.values()), (before, after)
    feeds = {"x": RANDOM(11).normal(size=(1, 4, 5, 5)).astype(np.float32)}
    for fast in (False, True):
        (given,) = run_ort(source, feeds)
        (found,) = run_ort(exported.model, feeds, optimized=fast)
        steps = np.rint(np.abs(given - found) / 0.08)
        assert steps.max() <= 2  # ties in front of each of two convolutions
        assert steps.mean() < 0.05


def dynamic_products(rank: int) -> onnx.ModelProto:
    """As `quantize_dynamic` writes two products of one source."""
    random = RANDOM(12)
    tensors, nodes = [], [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    for index, zero in enumerate((np.int8(0), np.uint8(117))):
        info = np.iinfo(zero.dtype)
        tensors += [
            numpy_helper.from_array(
                random.integers(info.min, info.max + 1, (16, 6)).astype(zero.dtype), f"w{index}"
            ),
            numpy_helper.from_array(np.asarray(zero), f"zw{index}"),
            numpy_helper.from_array(np.float32(0.01 + index), f"sw{index}"),
        ]
        nodes += [
            helper.make_node("MatMulInteger", ["q", f"w{index}", "z", f"zw{index}"], [f"i{index}"]),
            helper.make_node("Cast", [f"i{index}"], [f"r{index}"], to=1),
            helper.make_node("Mul", ["s", f"sw{index}"], [f"t{index}"]),
            helper.make_node("Mul", [f"r{index}", f"t{index}"], [f"m{index}"]),
        ]
    nodes.append(helper.make_node("Add", ["m0", "m1"], ["y"]))
    shape = [3] * (rank - 1)
    return network((nodes, tensors), x=(*shape, 16), y=(*shape, 6))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rank", [2, 3])
def test_ranges_taken_in_each_run_stay_whole(rank: int, form: str, tmp_path: Path) -> None:
    source = dynamic_products(rank)
    exported = fqfuse.export(source, tmp_path / "out.onnx", to=form)
    written = Counter(node.op_type for node in exported.model.graph.node)
    assert written == Counter(node.op_type for node in source.graph.node)
    assert optimized_operators(exported.model, tmp_path) == optimized_operators(source, tmp_path)
    feeds = {"x": RANDOM(13).normal(size=[3] * (rank - 1) + [16]).astype(np.float32)}
    (before,), (after,) = run_ort(source, feeds), run_ort(exported.model, feeds)
    # scales of another order of products
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6 * np.abs(before).max())


@pytest.mark.parametrize("zero", [True, False])
def test_a_computed_scale_is_a_scale_again(zero: bool, tmp_path: Path) -> None:
    """QuantizeLinear and DequantizeLinear by a maximum, with and without a zero point."""
    given = [numpy_helper.from_array(np.int8(-3), "z")] if zero else []
    parameters = ["s", "z"] if zero else ["s"]
    source = network(
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("ReduceMax", ["a"], ["m"], keepdims=0),
        ([], [numpy_helper.from_array(np.float32(127 if zero else 255), "c"), *given]),
        helper.make_node("Div", ["m", "c"], ["s"]),
        helper.make_node("QuantizeLinear", ["x", *parameters], ["q"]),
        helper.make_node("DequantizeLinear", ["q", *parameters], ["y"]),
        x=(3, 16),
        y=(3, 16),
    )
    exported = fqfuse.export(source, tmp_path / "out.onnx")
    written = Counter(node.op_type for node in exported.model.graph.node)
    assert (written["QuantizeLinear"], written["Round"]) == (1, 0)
    feeds = {"x": RANDOM(14).normal(size=(3, 16)).astype(np.float32)}
    assert np.array_equal(run_ort(source, feeds)[0], run_ort(exported.model, feeds)[0])


def test_codes_that_onnx_has_an_operator_not_for_go_through_f32(tmp_path: Path) -> None:
    source = network(
        quantized("xq", "x", 0.05, np.uint8(7)),
        helper.make_node("GlobalMaxPool", ["xq"], ["y"]),
        x=(1, 4, 5, 5),
        y=(1, 4, 1, 1),
    )
    exported = fqfuse.export(source, tmp_path / "out.onnx")
    feeds = {"x": RANDOM(5).normal(size=(1, 4, 5, 5)).astype(np.float32)}
    assert np.array_equal(run_ort(source, feeds)[0], run_ort(exported.model, feeds)[0])


def attention_scores() -> onnx.ModelProto:
    """A product of two computed operands, divided as in attention, behind it a normalization."""
    return network(
        quantized("q", "x", 0.02, np.uint8(128)),
        quantized("k", "x", 0.03, np.int8(0)),
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "t"], ["m"]),
        ([], [numpy_helper.from_array(np.float32(np.sqrt(32)), "root")]),
        helper.make_node("Div", ["m", "root"], ["d"]),
        helper.make_node("Sigmoid", ["x"], ["g"]),
        helper.make_node("Add", ["d", "g"], ["s"]),
        ([], [numpy_helper.from_array(np.ones(6, np.float32), "one")]),
        helper.make_node("LayerNormalization", ["s", "one"], ["y"]),
        x=(2, 6, 6),
        y=(2, 6, 6),
    )


@pytest.mark.parametrize("form", FORMS)
def test_attention_scales_and_residuals(form: str, tmp_path: Path) -> None:
    """The number goes into a scale, and the normalization stays apart from its residual."""
    source = attention_scores()
    exported = fqfuse.export(source, tmp_path / "out.onnx", to=form)
    assert not {node.op_type for node in exported.model.graph.node} & {"Div", "Add"}
    found = optimized_operators(exported.model, tmp_path)
    assert (found["MatMulIntegerToFloat"], found["SkipLayerNormalization"]) == (1, 0), found
    feeds = {"x": RANDOM(6).normal(size=(2, 6, 6)).astype(np.float32)}
    (before,), (after,) = run_ort(source, feeds), run_ort(exported.model, feeds)
    np.testing.assert_allclose(after, before, atol=1e-5)  # a division rounds otherwise


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lowest", [-100, 0])
def test_a_quantized_bias_is_added_on_codes(lowest: int, form: str, tmp_path: Path) -> None:
    """As ONNX Runtime's quantizer writes it: QLinearMatMul, QLinearAdd."""
    random = RANDOM(8)
    bias = random.integers(lowest, 128, 12).astype(np.int8)
    bias[:2] = lowest, 127
    source = network(
        quantized("xq", "x", 0.02, np.uint8(131)),
        codes_of("w", random.normal(size=(16, 12)).astype(np.float32), 1),
        helper.make_node("MatMul", ["xq", "w"], ["m"]),
        quantized("mq", "m", 0.1, np.uint8(126)),
        (
            [helper.make_node("DequantizeLinear", ["b_codes", "b_scale"], ["b"])],
            [
                numpy_helper.from_array(bias, "b_codes"),
                numpy_helper.from_array(np.float32(0.013), "b_scale"),
            ],
        ),
        helper.make_node("Add", ["mq", "b"], ["a"]),
        quantized("y", "a", 0.11, np.uint8(125)),
        x=(2, 5, 16),
        y=(2, 5, 12),
    )
    exported = fqfuse.export(source, tmp_path / "out.onnx", to=form)
    found = optimized_operators(exported.model, tmp_path)
    assert (found["QLinearMatMul"], found["QLinearAdd"], found["Add"]) == (1, 1, 0), found
    feeds = {"x": random.normal(size=(2, 5, 16)).astype(np.float32)}
    (before,), (after,) = run_ort(source, feeds), run_ort(exported.model, feeds)
    assert np.abs(before - after).max() <= 0.1101  # a step, at a tie


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scheme", [Scheme("nbits", 4, 32, False), Scheme("nbits", 8, 16, True)])
def test_packed_weights_stay_packed(scheme: Scheme, form: str, tmp_path: Path) -> None:
    source = packed_network("mlp", scheme)
    exported = fqfuse.export(source, tmp_path / "out.onnx", to=form)
    operators = Counter(node.op_type for node in exported.model.graph.node)
    assert operators["MatMulNBits" if form == "qoperator" else "DequantizeLinear"] >= 1
    dims = [dim.dim_value for dim in source.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": RANDOM(7).normal(size=dims).astype(np.float32)}
    (before,), (after,) = run_ort(source, feeds), run_ort(exported.model, feeds)
    # sums of f32 products in another order
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5 * np.abs(before).max())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("block", [8, 16])
def test_blocks_that_no_operator_takes_are_decoded(block: int, form: str, tmp_path: Path) -> None:
    """MatMulNBits begins with blocks of 16."""
    random = RANDOM(9)
    codes = random.integers(0, 16, (32, 8))
    source = network(
        (
            [
                helper.make_node(
                    "DequantizeLinear", ["codes", "scales"], ["w"], axis=0, block_size=block
                )
            ],
            [
                helper.make_tensor("codes", onnx.TensorProto.UINT4, codes.shape, codes.ravel()),
                numpy_helper.from_array(
                    random.uniform(0.1, 1, (32 // block, 8)).astype(np.float32), "scales"
                ),
            ],
        ),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        x=(3, 32),
        y=(3, 8),
    )
    source.opset_import[0].version, source.ir_version = 21, 10
    exported = fqfuse.export(source, tmp_path / "out.onnx", to=form)
    operators = Counter(node.op_type for node in exported.model.graph.node)
    assert bool(operators["MatMulNBits"]) == (form == "qoperator" and block == 16)
    feeds = {"x": random.normal(size=(3, 32)).astype(np.float32)}
    (before,), (after,) = run_ort(source, feeds), run_ort(exported.model, feeds)
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-4)  # sums in another order


def with_a_branch() -> onnx.ModelProto:
    """An If whose branches read a value that a quantizer makes, and an operator without a row."""
    branches = {}
    for name, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        out = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        branches[name] = helper.make_graph([helper.make_node(op, ["xq"], [name])], name, [], [out])
    return network(
        quantized("xq", "x", 0.05, np.uint8(120)),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        ([], [numpy_helper.from_array(np.float32(0), "none")]),
        helper.make_node("Greater", ["sum", "none"], ["positive"]),
        helper.make_node("If", ["positive"], ["b"], **branches),
        helper.make_node("Det", ["b"], ["y"]),
        x=(2, 3, 3),
        y=(2,),
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_operators_without_a_row_are_written_as_they_were(sign: int, tmp_path: Path) -> None:
    source = with_a_branch()
    exported = fqfuse.export(source, tmp_path / "out.onnx", to="qoperator")
    onnx.checker.check_model(exported.model, full_check=True)
    feeds = {"x": (sign * np.abs(RANDOM(15).normal(size=(2, 3, 3)))).astype(np.float32)}
    assert np.array_equal(run_ort(source, feeds)[0], run_ort(exported.model, feeds)[0])


# -- files -----------------------------------------------------------------------------------------


def test_large_data_lies_beside_the_model(tmp_path: Path) -> None:
    exported = fqfuse.export(digits_model_path("qdq"), tmp_path / "small.onnx")
    feeds = {"image": digits_test_set()[0][:4]}
    expected = run_ort(exported.model, feeds)
    save_model(exported.model, tmp_path / "large.onnx", limit=1000)
    (data,) = tmp_path.glob("large.onnx.*.data")
    assert data.stat().st_size > 1000
    assert files_of(tmp_path / "large.onnx") == (tmp_path / "large.onnx", data)
    assert (tmp_path / "large.onnx").stat().st_size < (tmp_path / "small.onnx").stat().st_size
    session = ort_session(tmp_path / "large.onnx")
    assert np.array_equal(session.run(None, feeds)[0], expected[0])
    assert np.isfinite(fqfuse.InferenceSession(tmp_path / "large.onnx").run(None, feeds)[0]).all()


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        fqfuse.export(digits_model_path("qdq"), tmp_path / name, to="qoperator")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_model_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(digits_model_path("qdq").read_bytes())
    before = path.read_bytes()
    (tmp_path / "link.onnx").symlink_to(path)
    for target in (path, tmp_path / "link.onnx"):
        with pytest.raises(fqfuse.InvalidInput, match="would replace a model that is read"):
            fqfuse.export(path, target)
    assert path.read_bytes() == before


def test_plans_and_unknown_forms_are_refused(tmp_path: Path) -> None:
    plan = fqfuse.compile(digits_model_path("qdq"))
    with pytest.raises(fqfuse.InvalidInput, match="scales folded into weights"):
        fqfuse.export(plan, tmp_path / "out.onnx")
    fqfuse.save_plan(plan, tmp_path / "plan.onnx")
    with pytest.raises(fqfuse.InvalidInput, match="scales folded into weights"):
        fqfuse.export(tmp_path / "plan.onnx", tmp_path / "out.onnx")
    with pytest.raises(fqfuse.InvalidInput, match="there is no form 'int8'"):
        fqfuse.export(digits_model_path("qdq"), tmp_path / "out.onnx", to="int8")
    with pytest.raises(fqfuse.InvalidInput, match="there is no form array"):
        fqfuse.export(digits_model_path("qdq"), tmp_path / "out.onnx", to=np.zeros(2))
    assert not (tmp_path / "out.onnx").exists()


# -- loops -----------------------------------------------------------------------------------------


def looped(nodes: list[onnx.NodeProto], condition: list[str], shape: list[int]) -> onnx.GraphProto:
    """The body of a Loop whose counters have that shape."""
    info, kinds = helper.make_tensor_value_info, onnx.TensorProto
    trip = [info("trip", kinds.INT64, shape), info("going", kinds.BOOL, shape)]
    on = helper.make_node("Identity", condition, ["on"])
    state, next_ = info("state", kinds.FLOAT, [2]), info("next", kinds.FLOAT, [2])
    return helper.make_graph(
        [*nodes, on], "body", [*trip, state], [info("on", kinds.BOOL, shape), next_]
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_value_that_a_loop_reads_and_its_body_captures(form: str, tmp_path: Path) -> None:
    body = looped([helper.make_node("Add", ["state", "d"], ["next"])], ["going"], [])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "k", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "k", "z"], ["d"]),
        helper.make_node("Loop", ["n", "go", "d"], ["y"], body=body, name="loop"),
    ]
    kinds = {"n": onnx.TensorProto.INT64, "go": onnx.TensorProto.BOOL}
    constants = {"k": np.float32(0.5), "z": np.int8(-128)}
    proto = model(nodes, inputs={"x": [2], "n": [], "go": []}, types=kinds, constants=constants)
    feeds = {"x": np.ones(2, np.float32), "n": np.array(2), "go": np.array(True)}
    exported = fqfuse.export(proto, tmp_path / "out.onnx", to=form).model
    np.testing.assert_array_equal(run_ort(exported, feeds)[0], run_ort(proto, feeds)[0])


@pytest.mark.parametrize("shape", [[], [1]])
def test_a_loop_without_a_condition_has_one_of_its_bodys_shape(
    shape: list[int], tmp_path: Path
) -> None:
    body = looped([helper.make_node("Neg", ["state"], ["next"])], ["going"], shape)
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body, name="loop")
    proto = model([loop], inputs={"x": [2], "n": []}, types={"n": onnx.TensorProto.INT64})
    feeds = {"x": np.ones(2, np.float32), "n": np.array(3)}
    exported = fqfuse.export(proto, tmp_path / "out.onnx").model
    np.testing.assert_array_equal(run_ort(exported, feeds)[0], run_ort(proto, feeds)[0])
    for backend in ("numpy", "onednn"):
        found = fqfuse.InferenceSession(proto, backend).run(None, feeds)
        np.testing.assert_array_equal(found[0], run_ort(proto, feeds)[0])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("zero", [np.uint8(131), np.int8(-20)])
def test_weights_with_a_zero_point_stay_codes(zero: np.integer, form: str, tmp_path: Path) -> None:
    """As ONNX Runtime quantizes with weight_type=QUInt8: it multiplies them as they are, oneDNN does not."""
    random = RANDOM(5)
    info = np.iinfo(zero.dtype)
    weights = random.integers(info.min, info.max + 1, (16, 8, 3, 3)).astype(zero.dtype)
    constants = [
        numpy_helper.from_array(weights, "w"),
        numpy_helper.from_array(np.float32(0.004), "sw"),
        numpy_helper.from_array(np.asarray(zero), "zw"),
    ]
    model = network(
        quantized("xq", "x", 0.05, np.uint8(120)),
        ([helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wd"])], constants),
        helper.make_node("Conv", ["xq", "wd"], ["c"]),
        quantized("y", "c", 0.1, np.uint8(128)),
        x=(1, 8, 6, 6),
        y=(1, 16, 4, 4),
    )
    exported = fqfuse.export(model, tmp_path / "out.onnx", to=form)
    assert exported.products == ()
    assert optimized_operators(exported.model, tmp_path)["QLinearConv"] == 1
    feeds = {"x": random.normal(size=(1, 8, 6, 6)).astype(np.float32)}
    (wanted,), (found,) = run_ort(model, feeds), run_ort(exported.model, feeds, optimized=True)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=0.1001)  # one code, next to ties
    assert (np.abs(found - wanted) > 1e-5).mean() <= 0.01


@pytest.mark.parametrize("form", FORMS)
def test_a_resize_of_codes_from_an_older_opset_is_written(form: str, tmp_path: Path) -> None:
    """As ONNX Runtime's QOperator form has it: between linear pixels of codes, of opset 17. Later opsets have
    attributes more, which say nothing where they are absent.
    """
    resize = helper.make_node(
        "Resize", ["q", "", "", "sizes"], ["r"], name="resize", mode="linear", cubic_coeff_a=-0.75
    )
    scale, zero = numpy_helper.from_array(np.float32(0.02), "s"), np.uint8(128)
    model = network(
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        resize,
        helper.make_node("DequantizeLinear", ["r", "s", "z"], ["y"]),
        ([], [scale, numpy_helper.from_array(zero, "z")]),
        ([], [numpy_helper.from_array(np.int64([1, 2, 8, 8]), "sizes")]),
        x=(1, 2, 4, 4),
        y=(1, 2, 8, 8),
    )
    feeds = {"x": RANDOM(3).normal(size=(1, 2, 4, 4)).astype(np.float32)}
    exported = fqfuse.export(model, tmp_path / "out.onnx", to=form).model
    (wanted,), (found,) = run_ort(model, feeds), run_ort(exported, feeds, optimized=True)
    np.testing.assert_array_equal(found, wanted)


def test_a_split_from_an_older_opset_is_refused() -> None:
    """Split-13 without sizes splits evenly into its outputs; Split-18 has to be told into how many."""
    from onnx import defs

    from fqfuse.exporter.foreign import _says_the_same

    def between(op: str, opset: int) -> bool:
        return _says_the_same(defs.get_schema(op, opset, ""), defs.get_schema(op, 21, ""))

    assert not between("Split", 13)
    assert not between("RoiAlign", 10)
    assert not between("ReduceMean", 13)  # whose axes became an input
    assert between("Resize", 13)
    assert between("GRU", 7)
