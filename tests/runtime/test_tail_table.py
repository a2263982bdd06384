"""When the end of an epilogue becomes a table, and that the table says what the passes say."""

from __future__ import annotations

import numpy as np
import pytest
from support.runtime_plans import one_step

from fqfuse.ir.types import DType
from fqfuse.plan.attributes import Binary, Eltwise, PostOp, PrimitiveAttr, Scale, Sum, ZeroPoint
from fqfuse.runtime.kernels import epilogue as epilogue_module
from fqfuse.runtime.kernels.passes import BinaryPass, Source, Store, SumPass
from fqfuse.runtime.kernels.tail import TailTable, affine_tail, with_table
from fqfuse.runtime.numerics import VNNI_3_2
from fqfuse.runtime.numpy_runtime import run_step

ROUND = (Eltwise("round"), Eltwise("clip", 0.0, 255.0))
LINEAR, SUM = Eltwise("linear", 0.37, -3.1), Sum("old", 0.21, 7)


def case(post_ops: tuple[PostOp, ...], dst: DType = DType.U8) -> tuple[object, ...]:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, (16, 64)).astype(np.uint8)
    w = rng.integers(-128, 128, (64, 32)).astype(np.int8)
    operands = {
        "old": rng.integers(dst.range[0], dst.range[1] + 1, (16, 32)).astype(dst.numpy)
        if dst.is_integer
        else None
    }
    operands["channels"] = rng.uniform(0.5, 1.5, (1, 32)).astype(np.float32)
    named = {op.operand for op in post_ops if isinstance(op, Sum | Binary)}
    scales = {"src": Scale((0.02,)), "weights": Scale((0.1,))} | (
        {"dst": Scale((0.4,))} if dst.is_integer else {}
    )
    attr = PrimitiveAttr(scales, {"dst": ZeroPoint((3,))} if dst.is_integer else {}, post_ops)
    chosen = {name: array for name, array in operands.items() if name in named}
    return one_step(
        "matmul",
        "MatMul",
        [("src", a), ("weights", w)],
        dst,
        attr=attr,
        operands=chosen,
        constants=("weights", "channels"),
    )


@pytest.mark.parametrize(
    ("post_ops", "dst", "expected"),
    [
        ((*ROUND, LINEAR, SUM, Eltwise("relu")), DType.U8, 65536),
        ((*ROUND, SUM), DType.S8, 65536),
        ((*ROUND, Eltwise("gelu_erf")), DType.U8, 256),
        ((Eltwise("clip", -8.0, 7.0), Eltwise("round"), Eltwise("tanh"), SUM), DType.U8, 16 * 256),
        ((*ROUND, LINEAR), DType.U8, None),  # three passes and the store cost less
        # per channel
        (
            (*ROUND, LINEAR, Binary("mul", "channels"), Eltwise("tanh")),
            DType.U8,
            None,
        ),
        ((Eltwise("round"), SUM, LINEAR), DType.U8, None),  # any integer
        ((Eltwise("clip", 0.0, 255.0), SUM, LINEAR), DType.U8, None),  # any value up to 255
        ((Eltwise("round"), Eltwise("clip", 0.5, 255.0), SUM), DType.U8, None),  # 0.5 is no integer
        ((*ROUND, LINEAR, Eltwise("tanh")), DType.F32, None),
    ],
)
def test_tables(
    monkeypatch: pytest.MonkeyPatch,
    post_ops: tuple[PostOp, ...],
    dst: DType,
    expected: int | str | None,
) -> None:
    made: list[int | str | None] = []

    def spy(passes: list[object], finish: object) -> object:
        result = with_table(passes, finish)
        made.append(
            "affine"
            if result[1] is finish and result[0] is not passes
            else result[1].table.size
            if isinstance(result[1], TailTable)
            else None
        )
        return result

    plan, step, live = case(post_ops, dst)
    monkeypatch.setattr(epilogue_module, "with_table", spy)
    (got,) = run_step(plan, step, live)
    assert made == [expected]
    monkeypatch.setattr(epilogue_module, "with_table", lambda passes, finish: (passes, finish))
    (want,) = run_step(plan, step, live)
    np.testing.assert_array_equal(got, want)
    assert len(np.unique(want)) > 1


def test_affine_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A residual add between two quantizers of arbitrary scales: plain passes, and every code that
    the passes of the sum give.
    """
    rng = np.random.default_rng(1)
    taken = 0
    for _ in range(8):
        linear = Eltwise(
            "linear",
            float(np.float32(rng.uniform(0.01, 1.5))),
            float(np.float32(rng.uniform(-9, 9))),
        )
        old = Sum("old", float(np.float32(rng.uniform(0.02, 2.0))), int(rng.integers(0, 256)))
        plan, step, live = case((*ROUND, linear, old))
        tails: list[bool] = []

        def spy(passes: list[object], finish: object, tails: list[bool] = tails) -> object:
            result = with_table(passes, finish)
            tails.append(result[1] is finish and result[0] is not passes)
            return result

        with monkeypatch.context() as patch:
            patch.setattr(epilogue_module, "with_table", spy)
            (got,) = run_step(plan, step, live)
            taken += tails[0]
            patch.setattr(epilogue_module, "with_table", lambda passes, finish: (passes, finish))
            (want,) = run_step(plan, step, live)
        np.testing.assert_array_equal(got, want)
    assert taken >= 6


def test_one_wrong_entry_refuses_an_affine_tail() -> None:
    profile = VNNI_3_2
    tail = [
        BinaryPass("mul", Source(np.asarray(0.5, np.float32))),
        SumPass(Source(index=0), 0.75, 0, DType.U8, profile.fma, 1e3),
    ]
    store = Store(DType.U8, profile, finite=True)
    codes, olds = np.arange(256, dtype=np.float32)[:, None], np.arange(256, dtype=np.float32)
    # exact: quarters below 2**9
    table = np.rint(np.clip(codes * np.float32(0.5) + olds * np.float32(0.75), 0, 255)).astype(
        np.uint8
    )
    assert affine_tail(tail, store, 0, table) is not None
    table[17, 99] += 1
    assert affine_tail(tail, store, 0, table) is None
