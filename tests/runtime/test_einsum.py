"""An Einsum broadcasts labels and ellipses: as a model, and as a plan that was saved and read
again, on each runtime.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from laws.runtimes import EACH_RUNTIME
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from support.einsums import Einsum, einsums
from support.onnx_cases import model, node, random, run_ort

import fqfuse
from fqfuse.errors import InvalidInput, InvalidModel, PlanError
from fqfuse.plan.file import plan_bytes


def einsum_model(equation, shapes):
    """`?` is a size without a name, None a shape of unknown rank."""
    names = [f"x{place}" for place in range(len(shapes))]
    dims = [
        None if shape is None else [None if dim == "?" else dim for dim in shape]
        for shape in shapes
    ]
    nodes = [node("Einsum", names, ["e"], equation=equation), node("Abs", ["e"])]
    return model(nodes, inputs=dict(zip(names, dims, strict=True)))


def feeds_of(shapes):
    return {f"x{place}": random(shape, place) for place, shape in enumerate(shapes)}


def holds(case, runtime):
    built, feeds = einsum_model(case.equation, case.known), feeds_of(case.shapes)
    expected = ReferenceEvaluator(built).run(None, feeds)[0]
    plan = fqfuse.load_plan(plan_bytes(fqfuse.compile(built)))
    (found,) = fqfuse.InferenceSession(plan, runtime, 1).run(None, feeds)
    assert found.shape == expected.shape
    if any(step.op == "Einsum" for step in plan.steps):
        np.testing.assert_array_equal(found, expected)
    else:  # a matrix product adds in another order than the evaluator
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


CASES = [
    Einsum("abc,adc->abd", ((1, 3, 4), (2, 5, 4)), ((1, 3, 4), (2, 5, 4))),
    Einsum("abc,adc->abd", ((2, 3, 1), (1, 5, 4)), (("N", 3, 1), (1, 5, 4))),
    Einsum("abc,adc->abd", ((1, 3, 4), (2, 5, 4)), (("N", 3, 4), ("M", 5, 4))),
    Einsum("abc,adc->abd", ((2, 3, 4), (1, 5, 4)), (("N", 3, 4), ("M", 5, 4))),
    Einsum("abc,adc->abd", ((1, 3, 4), (2, 5, 4)), (("N", 3, 4), (2, 5, 4))),
    Einsum("abc,adc->abd", ((1, 3, 4), (2, 5, 4)), (None, (2, 5, 4))),
    Einsum("...ab,...bc", ((1, 2, 3, 4), (5, 1, 4, 2)), ((1, "N", 3, 4), (5, "M", 4, 2))),
    Einsum("a,a,a->a", ((1,), (1,), (3,)), ((1,), (1,), (3,))),
]


@EACH_RUNTIME
@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.equation} {case.known}".replace("'", "")
)
def test_sizes_of_1_are_broadcast(case, runtime):
    holds(case, runtime)
    built, feeds = einsum_model(case.equation, case.known), feeds_of(case.shapes)
    (found,) = fqfuse.InferenceSession(built, runtime, 1).run(None, feeds)
    # sums in another order
    np.testing.assert_allclose(found, run_ort(built, feeds)[0], rtol=1e-5, atol=1e-6)


@settings(max_examples=40)
@given(einsums(wrong=False))
@example(Einsum("aab,a->b", ((3, 3, 1), (1,)), ((3, "N3", "?"), None)))
def test_a_random_einsum_runs_from_its_plan(case):
    holds(case, "numpy")


def test_one_session_broadcasts_at_each_size():
    built = einsum_model("ab,ac->abc", [("N", 2), ("M", 3)])
    session = fqfuse.InferenceSession(built, "numpy", 1)
    assert session.plan.type("y").shape == ("?", 2, 3)
    for n, m in [(1, 4), (4, 1), (1, 1), (3, 3)]:
        feeds = feeds_of([(n, 2), (m, 3)])
        np.testing.assert_array_equal(session.run(None, feeds)[0], run_ort(built, feeds)[0])
    with pytest.raises(InvalidInput, match="label 'a'"):
        session.run(None, feeds_of([(2, 2), (4, 3)]))


def test_a_symbol_that_all_operands_have_stays_known():
    plan = fqfuse.compile(einsum_model("ab,ac,a->abc", [("N", 2), ("N", 3), (1,)]))
    assert plan.type("y").shape == ("N", 2, 3)


def test_operands_that_do_not_fit_are_refused_at_import():
    with pytest.raises(InvalidModel, match="'b' is 3 in one operand and 4 in operand 1") as caught:
        fqfuse.compile(einsum_model("ab,bc->ac", [(2, 3), (4, 5)]))
    assert "Einsum node 'e'" in caught.value.where
    built = einsum_model("ab,,bc->ac", [(2, 3), (), (3, 5)])
    built.graph.node[0].input[1] = ""
    with pytest.raises(InvalidModel, match="needs its input 1"):
        fqfuse.compile(built)


@pytest.mark.parametrize("shape", [(1, 3, 5), (2, 3), (2, 3, "N", 5), (2, 4, 5)])
def test_a_plan_that_states_another_shape_is_refused(shape):
    plan = fqfuse.compile(einsum_model("abc,adc->abd", [(1, 3, 4), (2, 5, 4)]))
    stated = {
        name: replace(kind, shape=shape) if name in "ey" else kind
        for name, kind in plan.values.items()
    }
    with pytest.raises(PlanError, match=r"gives f32\[2,3,5\], and the plan says f32"):
        fqfuse.load_plan(plan_bytes(replace(plan, values=stated)))


@pytest.mark.parametrize("declared", [None, [2, 3, 5]], ids=["unknown", "declared"])
def test_inside_a_branch(declared):
    """ONNX infers the wrong shape for the branch as well."""

    def branch(name):
        inner = node("Einsum", ["a", "b"], [name], equation="abc,adc->abd")
        return helper.make_graph(
            [inner], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, declared)]
        )

    chosen = node("If", ["c"], ["t"], then_branch=branch("u"), else_branch=branch("v"))
    a, b = (
        np.random.default_rng(0).normal(size=shape).astype(np.float32)
        for shape in ((1, 3, 4), (2, 5, 4))
    )
    inputs = [helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    inputs += [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        for name, array in (("a", a), ("b", b))
    ]
    graph = helper.make_graph(
        [chosen, node("Relu", ["t"])], "g", inputs, [helper.make_empty_tensor_value_info("y")]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    plan = fqfuse.load_plan(plan_bytes(fqfuse.compile(proto)))
    (found,) = fqfuse.InferenceSession(plan, "numpy", 1).run(
        None, {"a": a, "b": b, "c": np.array(True)}
    )
    np.testing.assert_allclose(
        found,
        np.maximum(np.einsum("abc,adc->abd", np.broadcast_to(a, (2, 3, 4)), b), 0),
        rtol=1e-5,
        atol=1e-6,
    )


PRODUCTS = [
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("bhqd,bhkd->bhqk", [("B", 2, "Q", 4), ("B", 2, "K", 4)]),
    ("bqhd,bkhd->bhqk", [(2, 3, 2, 4), (2, 5, 2, 4)]),
    ("bhqk,bkhd->bqhd", [(2, 2, 3, 5), (2, 5, 2, 4)]),
    ("bqd,dhk->bqhk", [("B", "Q", 6), (6, 2, 3)]),
    ("bqhk,hkd->bqd", [("B", "Q", 2, 3), (2, 3, 6)]),
    ("dhk,bqd->bqhk", [(6, 2, 3), (2, 4, 6)]),
    ("ij,jk->ki", [(3, 4), (4, 5)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("zj,jk", [(3, 4), (4, 5)]),
    ("i,i->", [(4,), (4,)]),
    ("i,ij->j", [(4,), (4, 3)]),
    ("bi,bi->b", [(3, 4), (3, 4)]),
    ("bcij,bcjk->cbik", [(2, 3, 2, 4), (2, 3, 4, 2)]),
    ("bijc,cde->bdeij", [(2, 3, 4, 5), (5, 2, 3)]),
]
SIZES = {"B": 2, "Q": 3, "K": 5}


@EACH_RUNTIME
@pytest.mark.each_case
@pytest.mark.parametrize(("equation", "shapes"), PRODUCTS)
def test_a_sum_over_what_two_operands_share_is_a_matrix_product(equation, shapes, runtime):
    built = einsum_model(equation, shapes)
    feeds = feeds_of([tuple(SIZES.get(size, size) for size in shape) for shape in shapes])
    plan = fqfuse.compile(built)
    assert "matmul" in {step.primitive for step in plan.steps}
    assert "Onnx" not in {step.op for step in plan.steps}
    (found,) = fqfuse.InferenceSession(plan, runtime, 1).run(None, feeds)
    (wanted,) = run_ort(built, feeds)
    assert found.shape == wanted.shape
    # sums in another order
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", [("M", 3, 4), ("N", 4, 5)]),  # one of M and N may be 1
        ("bij,bjk->bik", [(1, 3, 4), (2, 4, 5)]),
        ("ij,jk->i", [(3, 4), (4, 5)]),
        ("ii,ij->j", [(3, 3), (3, 4)]),
        ("bq,bdh->qdh", [(0, 3), (0, 4, 5)]),
        ("abc,abd->cd", [("A", "B", 3), ("A", "B", 4)]),
    ],
)
def test_an_einsum_that_is_no_plain_product_stays_one(equation, shapes):
    plan = fqfuse.compile(einsum_model(equation, shapes))
    assert "Onnx" in {step.op for step in plan.steps}


def test_codes_of_an_einsum_are_multiplied_in_int8():
    scales = {"s": np.float32(0.02), "z": np.uint8(128), "t": np.float32(0.01), "n": np.int8(0)}
    weights = np.random.default_rng(0).integers(-127, 128, (6, 2, 3)).astype(np.int8)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "t", "n"], ["v"]),
        node("Einsum", ["d", "v"], ["y"], equation="bqd,dhk->bqhk"),
    ]
    built = model(nodes, inputs={"x": ["B", "Q", 6]}, constants=scales | {"w": weights})
    plan = fqfuse.compile(built)
    (product,) = (step for step in plan.steps if step.primitive == "matmul")
    assert plan.type(product.arg("src")).dtype.value == "u8"
    assert plan.type(product.arg("weights")).dtype.value == "s8"
    feeds = {"x": random((2, 4, 6))}
    (found,) = fqfuse.InferenceSession(plan).run(None, feeds)
    np.testing.assert_allclose(found, run_ort(built, feeds)[0], rtol=1e-5, atol=1e-5)
