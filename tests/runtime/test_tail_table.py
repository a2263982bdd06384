"""When the end of an epilogue becomes a table, and that the table says what the passes say."""

from __future__ import annotations

import numpy as np
import pytest
from runtime_plans import one_step

from fqfuse.composer.attributes import Binary, Eltwise, PostOp, PrimitiveAttr, Scale, Sum, ZeroPoint
from fqfuse.ir.types import DType
from fqfuse.runtime.kernels import epilogue as epilogue_module
from fqfuse.runtime.kernels.tail_table import TailTable, with_table
from fqfuse.runtime.numpy_runtime import run_step

ROUND = (Eltwise("round"), Eltwise("clip", 0.0, 255.0))
LINEAR, SUM = Eltwise("linear", 0.37, -3.1), Sum("old", 0.21, 7)


def case(post_ops: tuple[PostOp, ...], dst: DType = DType.U8) -> tuple[object, ...]:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, (16, 64)).astype(np.uint8)
    w = rng.integers(-128, 128, (64, 32)).astype(np.int8)
    operands = {"old": rng.integers(dst.range[0], dst.range[1] + 1, (16, 32)).astype(dst.numpy) if dst.is_integer else None}
    operands["channels"] = rng.uniform(0.5, 1.5, (1, 32)).astype(np.float32)
    named = {op.operand for op in post_ops if isinstance(op, Sum | Binary)}
    scales = {"src": Scale((0.02,)), "weights": Scale((0.1,))} | ({"dst": Scale((0.4,))} if dst.is_integer else {})
    attr = PrimitiveAttr(scales, {"dst": ZeroPoint((3,))} if dst.is_integer else {}, post_ops)
    chosen = {name: array for name, array in operands.items() if name in named}
    return one_step("matmul", "MatMul", [("src", a), ("weights", w)], dst, attr=attr, operands=chosen, constants=("weights", "channels"))


@pytest.mark.parametrize(
    ("post_ops", "dst", "expected"),
    [
        ((*ROUND, LINEAR, SUM, Eltwise("relu")), DType.U8, 65536),
        ((*ROUND, SUM), DType.S8, 65536),
        ((*ROUND, Eltwise("gelu_erf")), DType.U8, 256),
        ((Eltwise("clip", -8.0, 7.0), Eltwise("round"), Eltwise("tanh"), SUM), DType.U8, 16 * 256),
        ((*ROUND, LINEAR), DType.U8, None),  # three passes and the store cost less
        ((*ROUND, LINEAR, Binary("mul", "channels"), Eltwise("tanh")), DType.U8, None),  # per channel
        ((Eltwise("round"), SUM, LINEAR), DType.U8, None),  # any integer
        ((Eltwise("clip", 0.0, 255.0), SUM, LINEAR), DType.U8, None),  # any value up to 255
        ((Eltwise("round"), Eltwise("clip", 0.5, 255.0), SUM), DType.U8, None),  # 0.5 is no integer
        ((*ROUND, LINEAR, Eltwise("tanh")), DType.F32, None),
    ],
)
def test_tables(monkeypatch: pytest.MonkeyPatch, post_ops: tuple[PostOp, ...], dst: DType, expected: int | None) -> None:
    made: list[int | None] = []

    def spy(passes: list[object], finish: object) -> object:
        result = with_table(passes, finish)
        made.append(result[1].table.size if isinstance(result[1], TailTable) else None)
        return result

    plan, step, live = case(post_ops, dst)
    monkeypatch.setattr(epilogue_module, "with_table", spy)
    (got,) = run_step(plan, step, live)
    assert made == [expected]
    monkeypatch.setattr(epilogue_module, "with_table", lambda passes, finish: (passes, finish))
    (want,) = run_step(plan, step, live)
    np.testing.assert_array_equal(got, want)
    assert len(np.unique(want)) > 1
