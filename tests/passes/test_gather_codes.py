"""gather_codes: golden cases, each held to the laws; embeddings of models as they come."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from laws.golden import check_pass
from laws.plans import refusals
from onnx import TensorProto
from support.onnx_cases import model, node, random, run_ort

import fqfuse
from fqfuse.passes.gather_codes import GATHER_CODES


@pytest.mark.golden("gather_codes")
def test_golden(golden) -> None:
    check_pass(golden, GATHER_CODES)


CODES = np.random.default_rng(7).integers(-128, 128, (500, 32))
SCALES = {
    "tensor": np.float32(0.01),
    "rows": np.random.default_rng(8).uniform(0.001, 0.01, 500).astype(np.float32),
    "columns": np.random.default_rng(9).uniform(0.001, 0.01, 32).astype(np.float32),
}
AXES = {"tensor": 0, "rows": 0, "columns": 1}


def embedded(kind, scales: str, zero: int, *, arithmetic: bool = False) -> onnx.ModelProto:
    """ids -> rows of a table of codes, decoded by DequantizeLinear, or Cast, Sub and Mul, in front
    -> Add of another table's row and a constant -> normalization.
    """
    scale = SCALES[scales]
    constants = {
        "t": CODES.astype(kind),
        "types": CODES[:40].astype(np.int8),
        "types_scale": np.float32(0.005),
        "position": random((1, 6, 32)),
        "gain": np.ones(32, np.float32),
    }
    if arithmetic:
        shape = {"tensor": (), "rows": (500, 1), "columns": (32,)}[scales]
        constants |= {"s": scale.reshape(shape), "z": np.float32(zero)}
        nodes = [
            node("Cast", ["t"], ["wide"], name="cast", to=TensorProto.FLOAT),
            node("Sub", ["wide", "z"], ["shifted"], name="sub"),
            node("Mul", ["shifted", "s"], ["table"], name="decode"),
        ]
    else:
        constants |= {"s": scale, "z": np.full(scale.shape, zero, kind)}
        decode = node(
            "DequantizeLinear", ["t", "s", "z"], ["table"], name="decode", axis=AXES[scales]
        )
        nodes = [decode]
    nodes += [
        node("Gather", ["table", "ids"], ["word"], name="words"),
        node("DequantizeLinear", ["types", "types_scale"], ["type_table"], name="types_decode"),
        node("Gather", ["type_table", "ids2"], ["type"], name="of_types"),
        node("Add", ["word", "type"], ["both"], name="add"),
        node("Add", ["both", "position"], ["sum"], name="add2"),
        node("LayerNormalization", ["sum", "gain"], ["y"], name="norm"),
    ]
    kinds = dict.fromkeys(("ids", "ids2"), TensorProto.INT64)
    return model(
        nodes,
        inputs={"ids": ["N", 6], "ids2": ["N", 6]},
        types=kinds,
        constants=constants,
        outputs=["word", "y"],
    )


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
@pytest.mark.parametrize("scales", list(SCALES))
@pytest.mark.parametrize(("kind", "zero"), [(np.int8, 0), (np.int8, -3), (np.uint8, 120)])
@pytest.mark.parametrize("arithmetic", [False, True])
def test_embeddings_stay_in_codes(kind, zero, scales, arithmetic, backend, tmp_path) -> None:
    proto = embedded(kind, scales, zero, arithmetic=arithmetic)
    plan = fqfuse.compile(proto)
    large = [array for array in plan.constants.values() if array.size >= CODES[:40].size]
    assert {array.dtype for array in large} == {np.dtype(kind), np.dtype(np.int8)}
    fqfuse.save_plan(plan, tmp_path / "plan.onnx")
    # decisions and fates are some 10 kB
    assert (tmp_path / "plan.onnx").stat().st_size < len(proto.SerializeToString()) + 20_000
    session = fqfuse.InferenceSession(tmp_path / "plan.onnx", backend=backend)
    for count in (1, 3):
        rng = np.random.default_rng(count)
        feeds = {
            "ids": rng.integers(-500, 500, (count, 6)),
            "ids2": rng.integers(0, 40, (count, 6)),
        }
        word, y = session.run(None, feeds)
        wanted_word, wanted = run_ort(proto, feeds)
        np.testing.assert_array_equal(word, wanted_word)  # the model's three operations, in order
        # sums of three terms and a normalization in another order of the same f32 operations
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
def test_an_index_outside_of_the_table_is_refused_as_before(backend) -> None:
    session = fqfuse.InferenceSession(embedded(np.int8, "rows", 0), backend=backend)
    ids = np.zeros((1, 6), np.int64)
    with pytest.raises(fqfuse.FqfuseError):
        session.run(None, {"ids": ids + 500, "ids2": ids})


def test_a_quantizer_behind_the_table_is_still_one_with_it() -> None:
    """Static quantization writes one there: its codes are picked, from a table in its codes."""
    constants = {
        "t": CODES.astype(np.int8),
        "s": np.float32(0.01),
        "r": np.float32(0.02),
        "z": np.uint8(128),
    }
    nodes = [
        node("DequantizeLinear", ["t", "s"], ["table"], name="decode"),
        node("Gather", ["table", "ids"], ["word"], name="words"),
        node("QuantizeLinear", ["word", "r", "z"], ["y"], name="encode"),
    ]
    kinds = {"ids": TensorProto.INT64}
    proto = model(nodes, inputs={"ids": ["N", 6]}, types=kinds, constants=constants)
    plan = fqfuse.compile(proto)
    (step,) = plan.steps
    assert step.primitive == "onnx.Gather"
    assert plan.constants[step.inputs[0]].dtype == np.uint8
    feeds = {"ids": np.random.default_rng(1).integers(0, 500, (2, 6))}
    for backend in ("numpy", "onednn"):
        (found,) = fqfuse.InferenceSession(plan, backend=backend).run(None, feeds)
        np.testing.assert_array_equal(found, run_ort(proto, feeds)[0])


def test_a_table_that_a_product_reads_too_serves_both() -> None:
    """Tied weights of a language model: rows on the way in, a product on the way out."""
    constants = {
        "t": CODES.astype(np.int8),
        "s": SCALES["rows"],
        "one": np.float32(2**-5),
        "z": np.uint8(128),
    }
    nodes = [
        node("DequantizeLinear", ["t", "s"], ["table"], name="decode", axis=0),
        node("Gather", ["table", "ids"], ["word"], name="words"),
        node("QuantizeLinear", ["word", "one", "z"], ["q"], name="encode"),
        node("DequantizeLinear", ["q", "one", "z"], ["d"], name="decode_again"),
        node("Transpose", ["table"], ["turned"], name="turn", perm=[1, 0]),
        node("MatMul", ["d", "turned"], ["y"], name="head"),
    ]
    kinds = {"ids": TensorProto.INT64}
    proto = model(nodes, inputs={"ids": ["N", 6]}, types=kinds, constants=constants)
    plan = fqfuse.compile(proto)
    assert all(array.dtype != np.float32 for array in plan.constants.values() if array.size > 500)
    feeds = {"ids": np.random.default_rng(1).integers(0, 500, (2, 6))}
    for backend in ("numpy", "onednn"):
        (found,) = fqfuse.InferenceSession(plan, backend=backend).run(None, feeds)
        np.testing.assert_allclose(found, run_ort(proto, feeds)[0], rtol=1e-5, atol=1e-4)


def test_a_small_table_is_decoded_once() -> None:
    constants = {"t": CODES[:6].astype(np.int8), "s": np.float32(0.1)}
    nodes = [
        node("DequantizeLinear", ["t", "s"], ["table"], name="decode"),
        node("Gather", ["table", "ids"], ["y"], name="words"),
    ]
    kinds = {"ids": TensorProto.INT64}
    plan = fqfuse.compile(model(nodes, inputs={"ids": [2, 3]}, types=kinds, constants=constants))
    assert [step.primitive for step in plan.steps] == ["onnx.Gather"]
    assert refusals(plan, "as many elements are picked")
