"""Channel shuffles, and blocks of pixels as channels: one reorder that keeps the layout, whatever it
is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from support.executor_plans import F32, U8, Builder
from support.steps_compared import compare_steps
from support.versions import unexplained

from fqfuse.ir.ops import OPS
from fqfuse.ir.types import DType
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering.executor import OneDnnExecutor


@pytest.fixture
def b() -> Builder:
    return Builder()


def checked(plan: Plan, feeds: Mapping[str, np.ndarray]) -> OneDnnExecutor:
    """An executor that computes every step as NumPy does."""
    executor = OneDnnExecutor(plan, 2)
    assert unexplained(compare_steps(plan, executor, feeds)) == []
    return executor


@pytest.mark.parametrize(
    ("shape", "axis", "size"),
    [
        ((2, 12, 5, 6), 1, 6),
        ((2, 12, 5, 6), 1, 4),
        ((1, 6, 5, 12), -1, 3),
        ((3, 8), 1, 2),
        ((6, 4, 3), 0, 3),
        ((2, 6, 2, 3, 4), 1, 2),
    ],
)
@pytest.mark.parametrize("codes", [True, False])
def test_of_what_lies_row_major(
    b: Builder, shape: tuple[int, ...], axis: int, size: int, codes: bool
) -> None:
    x = b.input("x", shape)
    x = b.quantize(x, "codes") if codes else x
    b.step(
        "shuffle",
        "Shuffle",
        {"src": x},
        "y",
        U8 if codes else F32,
        shape,
        {"axis": axis, "group_size": size},
    )
    feeds = b.feeds()
    executor = checked(b.plan("y"), feeds)
    assert executor.placement()[-1].runtime == "onednn"
    axis %= len(shape)
    values = executor.run_all(feeds) | feeds
    groups = values[x].reshape(*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :])
    np.testing.assert_array_equal(values["y"], np.swapaxes(groups, axis, axis + 1).reshape(shape))


@pytest.mark.of_vnni("codes that are multiplied in f32 are converted in front and behind")
def test_between_convolutions_no_layout_changes(b: Builder) -> None:
    x = b.quantize(b.input("x", (1, 16, 7, 7)), "codes")
    b.convolution(x, "first", (12, 16, 1, 1))
    b.step(
        "shuffle",
        "Shuffle",
        {"src": "first"},
        "shuffled",
        U8,
        (1, 12, 7, 7),
        {"axis": 1, "group_size": 6},
    )
    b.convolution("shuffled", "second", (8, 12, 1, 1))
    executor = checked(b.plan("second"), b.feeds())
    assert [placement.runtime for placement in executor.placement()] == ["onednn"] * 4
    assert executor.reorders == 0
    assert " + " not in executor.placement()[2].implementation, "no reorder beside its own"
    assert " + " not in executor.placement()[3].implementation, (
        "the convolution takes the channels as they lie"
    )


# -- blocks of pixels ------------------------------------------------------------------------------


def blocks(b: Builder, op: str, mode: str, source: str, dtype: DType, shape, block: int) -> str:
    n, c, h, w = shape
    size = block * block
    out = (n, c // size, h * block, w * block)
    if op == "SpaceToDepth":
        out = (n, c * size, h // block, w // block)
    params = {"blocksize": block, "mode": mode}
    return b.step(f"onnx.{op}", op, {"x": source}, "y", dtype, out, params)


@pytest.mark.parametrize("op", ["DepthToSpace", "SpaceToDepth"])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [U8, F32])
@pytest.mark.parametrize(
    ("shape", "block"),
    [
        ((2, 12, 6, 4), 2),
        ((1, 9, 6, 3), 3),
        ((1, 4, 2, 2), 2),
        ((1, 4, 4, 1), 1),
        ((3, 64, 8, 8), 4),
    ],
)
def test_blocks_of_pixels(b: Builder, op, mode, last, dtype, shape, block) -> None:
    """Of what lies row-major, and of what lies channels last."""
    source = (
        b.quantize(b.input("x", shape), "codes") if dtype is U8 or last else b.input("x", shape)
    )
    if last:
        source = b.convolution(source, "moved", (shape[1], shape[1], 1, 1), dtype)
    blocks(b, op, mode, source, dtype, shape, block)
    feeds = b.feeds()
    executor = checked(b.plan("y"), feeds)
    assert executor.placement()[-1].runtime == "onednn"
    values = executor.run_all(feeds) | feeds
    (wanted,) = OPS[op].evaluate([values[source]], {"blocksize": block, "mode": mode})
    np.testing.assert_array_equal(values["y"], wanted)
    np.testing.assert_array_equal(executor.run(feeds)[0], wanted)
