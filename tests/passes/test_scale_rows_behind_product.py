"""scale_rows_behind_product: golden cases, each held to the laws; and whole models, by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from laws.golden import check_pass
from laws.runtimes import EACH_RUNTIME
from support.onnx_cases import model, node, run_ort

import fqfuse
from fqfuse.ir.types import DType
from fqfuse.passes.scale_rows_behind_product import SCALE_ROWS_BEHIND_PRODUCT


@pytest.mark.golden("scale_rows_behind_product")
def test_golden(golden) -> None:
    check_pass(golden, SCALE_ROWS_BEHIND_PRODUCT)


@EACH_RUNTIME
def test_rows_of_their_own_scales_are_multiplied_as_codes(runtime: str) -> None:
    """Scales of each run: written out as torchao does, or fed; and constant ones. Rows of any size, one of
    zeros among them."""
    rng = np.random.default_rng(3)
    for draw in range(12):
        kind, width, columns = ("computed", "fed", "constant")[draw % 3], *rng.integers(2, 70, 2)
        rows = int(rng.integers(1, 20))
        weights = rng.integers(-127, 128, (width, columns)).astype(np.int8)
        constants = {"w": weights, "ws": rng.uniform(0.01, 1, columns).astype(np.float32)}
        x = rng.normal(0, 10.0 ** rng.integers(-6, 7, (rows, 1)), (rows, width)).astype(np.float32)
        scales = (np.abs(x).max(1) / 127 + 1e-9).astype(np.float32)
        feeds, nodes = {"x": x}, []
        if kind == "computed":
            constants |= {"axes": np.array([1]), "most": np.float32(127), "low": np.float32(-127)}
            constants |= {"tiny": np.float32(1e-9)}
            nodes = [
                node("Abs", ["x"], ["a"]),
                node("ReduceMax", ["a", "axes"], ["m"], keepdims=1),
                node("Div", ["m", "most"], ["n"]),
                node("Add", ["n", "tiny"], ["s"]),
                node("Div", ["x", "s"], ["e"]),
                node("Round", ["e"], ["r"]),
                node("Clip", ["r", "low", "most"], ["c"]),
                node("Cast", ["c"], ["q"], to=3),
                node("Cast", ["q"], ["f"], to=1),
                node("Mul", ["f", "s"], ["d"]),
            ]
        else:
            constants |= {"z": np.full(rows, draw, np.int8)}
            (feeds if kind == "fed" else constants)["s"] = scales
            nodes = [
                node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=0),
                node("DequantizeLinear", ["q", "s", "z"], ["d"], axis=0),
            ]
        last = [
            node("DequantizeLinear", ["w", "ws"], ["wd"], axis=1),
            node("MatMul", ["d", "wd"], ["y"]),
        ]
        shapes = {name: list(array.shape) for name, array in feeds.items()}
        proto = model([*nodes, *last], inputs=shapes, constants=constants)
        plan = fqfuse.compile(proto)
        (product,) = (step for step in plan.steps if step.primitive == "matmul")
        assert plan.type(product.arg("src") or "").dtype in (DType.U8, DType.S8), kind
        (found,) = fqfuse.InferenceSession(plan, runtime).run(None, feeds)
        (expected,) = run_ort(proto, feeds)
        # ONNX Runtime adds up in f32; of codes next to a tie it may round the other one
        size = np.abs(x).max(1, keepdims=True) * (np.abs(weights).max(0) * constants["ws"])
        assert (np.abs(found - expected) <= size * (1 / 127 + 1e-6 * width)).all(), kind
        assert np.median(np.abs(found - expected) / size) < 1e-5, kind
