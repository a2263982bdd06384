"""Steps between primitives that come to one call: the same bytes as the row's evaluation, in the
memory that the next primitive reads.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from support.executor_plans import F32, S8, U8, Builder
from support.steps_compared import compare_steps

from fqfuse.errors import InvalidInput
from fqfuse.ir.types import DType
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.lowering.host import HostAction
from fqfuse.runtime.lowering.program import Owner
from fqfuse.runtime.numpy_runtime import NumpyExecutor


def doubled(b: Builder, value: str, shape: tuple[int, ...]) -> Plan:
    """A primitive behind the step, so that a primitive reads what the step wrote."""
    two = b.constant("two", np.full([1] * len(shape), 2, np.float32))
    return b.plan(
        b.step(
            "binary",
            "Mul",
            {"src_0": value, "src_1": two},
            "doubled",
            F32,
            shape,
            {"algorithm": "mul"},
        ),
        value,
    )


def agrees(plan: Plan, feeds: dict[str, np.ndarray]) -> OneDnnExecutor:
    executor = OneDnnExecutor(plan, 2)
    assert [str(d) for d in compare_steps(plan, executor, feeds)] == []
    for _ in range(2):  # the second run finds the memory of the first
        for got, wanted in zip(executor.run(feeds), NumpyExecutor(plan, 1).run(feeds), strict=True):
            np.testing.assert_array_equal(got, wanted)
    return executor


def single(executor: OneDnnExecutor) -> bool:
    """True when the first step on NumPy is one call into the arena."""
    program = executor._latest()
    action = next(action for action in program.actions if isinstance(action, HostAction))
    return action.runner.single_call is not None and all(
        tensor.buffer.owner is Owner.ARENA for tensor in action.outputs.values()
    )


@pytest.mark.parametrize("kind", [DType.S64, DType.S32, DType.S16, DType.U64, DType.BOOL, DType.U8])
def test_cast(kind: DType) -> None:
    b = Builder()
    b.input("x", (3, 40), kind)
    b.step("onnx.Cast", "Cast", {"x": "x"}, "y", F32, (3, 40), {"to": F32})
    plan = doubled(b, "y", (3, 40))
    info = np.iinfo(np.int8 if kind is DType.BOOL else kind.numpy)
    x = (
        np.random.default_rng(3)
        .integers(info.min, info.max, (3, 40), dtype=info.dtype, endpoint=True)
        .astype(kind.numpy)
    )
    assert single(agrees(plan, {"x": x}))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [F32, U8])
@pytest.mark.parametrize("shape", [(7,), (2, 3), (1, 1)])
def test_gather(axis: int, dtype: DType, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    table = rng.integers(0, 200, (9, 6)).astype(dtype.numpy)
    size = table.shape[axis]
    b = Builder()
    b.input("i", shape, DType.S64)
    data = b.constant("table", table)
    picked = rng.integers(-size, size, shape)
    wanted = np.take(table, picked, axis).shape
    b.step("onnx.Gather", "Gather", {"x": data, "indices": "i"}, "y", dtype, wanted, {"axis": axis})
    assert single(agrees(doubled(b, "y", wanted), {"i": picked}))


@pytest.mark.parametrize("wrong", [6, -7, 2**40])
def test_an_index_out_of_range_says_so(wrong: int) -> None:
    b = Builder()
    b.input("i", (2,), DType.S64)
    data = b.constant("table", np.arange(24, dtype=np.float32).reshape(6, 4))
    b.step("onnx.Gather", "Gather", {"x": data, "indices": "i"}, "y", F32, (2, 4), {"axis": 0})
    executor = OneDnnExecutor(doubled(b, "y", (2, 4)), 1)
    with pytest.raises(InvalidInput, match="Gather cannot be computed") as caught:
        executor.run({"i": np.array([0, wrong])})
    assert "node of y" in str(caught.value)
    # and goes on
    np.testing.assert_array_equal(
        executor.run({"i": np.array([5, -6])})[1], [[20, 21, 22, 23], [0, 1, 2, 3]]
    )


@pytest.mark.parametrize("source", [U8, S8])
@pytest.mark.parametrize("target", [U8, S8])
def test_lookup(source: DType, target: DType) -> None:
    rng = np.random.default_rng(7)
    b = Builder()
    b.input("x", (2, 5, 64), source)
    table = b.constant("table", rng.integers(0, 256, 256).astype(np.uint8).view(target.numpy))
    b.step(
        "onnx.Lookup",
        "Lookup",
        {"x": "x", "table": table},
        "y",
        target,
        (2, 5, 64),
        {"quant": None},
    )
    x = rng.integers(0, 256, (2, 5, 64)).astype(np.uint8).view(source.numpy)
    assert single(agrees(doubled(b, "y", (2, 5, 64)), {"x": x}))


def test_threads_have_buffers_of_their_own() -> None:
    b = Builder()
    b.input("x", (1, 4096), U8)
    table = b.constant("table", np.random.default_rng(1).permutation(256).astype(np.uint8))
    b.step("onnx.Lookup", "Lookup", {"x": "x", "table": table}, "y", U8, (1, 4096), {"quant": None})
    plan = doubled(b, "y", (1, 4096))
    executor = OneDnnExecutor(plan, 1)
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(200):
            x = rng.integers(0, 256, (1, 4096)).astype(np.uint8)
            if not np.array_equal(executor.run({"x": x})[1], plan.constants["table"][x]):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
