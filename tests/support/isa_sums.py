"""Products of codes whose post-ops one implementation of oneDNN takes and another refuses: sums late, unlike,
moved, or read as another type, operands along some axes, zero points told for each channel. On this process's
library, and on NumPy with `isa`: run as a script under ONEDNN_MAX_CPU_ISA.

    isa_sums.py ISA SEED TIMES     prints one JSON line: what ran by compiled code, by others, and lost bits
"""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np

from fqfuse.ir.types import DType
from fqfuse.plan.attributes import Binary, Eltwise, PostOp, Prelu, PrimitiveAttr, Sum, ZeroPoint
from fqfuse.primitives import prim

GEOMETRIES = {
    "convolution": ([2, 16, 5], [16, 16, 1], [2, 16, 5]),
    "convolution of groups": ([1, 16, 5, 5], [2, 8, 8, 3, 3], [1, 16, 3, 3]),
    "convolution, depthwise": ([1, 16, 5, 5], [16, 1, 1, 3, 3], [1, 16, 3, 3]),
    "convolution, depthwise in space": ([1, 16, 3, 4, 4], [16, 1, 1, 2, 3, 3], [1, 16, 2, 2, 2]),
    "matmul": ([5, 19], [19, 16], [5, 16]),
    "matmul of five dimensions": ([1, 2, 2, 5, 19], [1, 2, 2, 19, 7], [1, 2, 2, 5, 7]),
    "inner_product": ([5, 16], [16, 16], [5, 16]),
    "inner_product of spatial sizes": ([5, 7, 2, 2], [9, 7, 2, 2], [5, 9]),
    "deconvolution": ([2, 16, 5], [24, 16, 3], [2, 24, 7]),
    "deconvolution of single taps": ([2, 16, 5], [24, 16, 1], [2, 24, 5]),
    "deconvolution of wide rows": ([1, 8, 3], [72, 8, 9], [1, 72, 11]),
}
"""Source, weights and destination; the kind is the first word."""

_RELU, _OLD = Eltwise("relu"), Sum("old")
SUMS: list[tuple[PostOp, ...]] = [
    (_OLD,),
    (Sum("old", 2.0, 3, DType.S32),),
    (Sum("old", 1.0, 0, DType.S32),),
    (Sum("old", 1.0, 0, DType.F32),),
    (_OLD, _OLD),
    (_OLD, Sum("old", 2.0)),
    (_RELU, _OLD),
    (_RELU, Sum("old", 1.0, 3, DType.S32)),
    (_OLD, _RELU, Sum("old", 2.0)),
]


def operands(dst: list[int]) -> Iterator[tuple[int, ...]]:
    """The shapes of what broadcasts to a result: along no axis, one, or all but one."""
    rank = len(dst)
    for kept in {0, 1, rank - 1, rank}:
        for axes in itertools.combinations(range(rank), kept):
            yield tuple(size if axis in axes else 1 for axis, size in enumerate(dst))


def attributes(
    kind: str, src: list[int], dst: list[int]
) -> Iterator[tuple[PrimitiveAttr, tuple[int, ...]]]:
    """Attributes, and the shape of their operand."""
    for post_ops in SUMS:
        yield PrimitiveAttr(post_ops=post_ops), ()
    for shape in operands(dst):
        yield PrimitiveAttr(post_ops=(Binary("add", "operand"),)), shape
        if not kind.startswith("matmul of"):  # slopes there are told as wrong
            mask = sum(1 << axis for axis, size in enumerate(shape) if size > 1)
            if mask == 2 or not mask & 2:
                yield PrimitiveAttr(post_ops=(Prelu("operand", mask),)), shape
    if not kind.startswith("inner") and (not kind.startswith("matmul") or len(dst) == 2):
        yield PrimitiveAttr(zero_points={"src": ZeroPoint((3,) * src[1], 2)}), ()


def main(isa: str, seed: str, times: str) -> None:
    """Prints what agreed."""
    rng, tried, agreed, lost = np.random.default_rng(int(seed)), Counter(), Counter(), 0
    for name, (src, weights, dst) in GEOMETRIES.items():
        kind = name.split()[0].rstrip(",")
        drawn = itertools.product(("u8", "s8") * int(times), attributes(name, src, dst))
        for dtype, (attr, shape) in drawn:
            words = {"src": f"{dtype}{src}", "weights": f"s8{weights}", "dst": f"f32{dst}"}
            words |= {"operand": f"f32{list(shape)}"} if shape else {}
            theirs = prim(kind, attr, engine="onednn", **words)
            if theirs.passed_over:
                continue
            low, high = DType(dtype).range
            args = {
                "src": rng.choice([low, high, high], src).astype(DType(dtype).numpy),
                "weights": rng.choice([-127, 125, 127], weights).astype(np.int8),
            }
            for held in attr.operands:
                type_ = theirs.description.operands[held]
                args[held] = rng.integers(1, 9, type_.static_shape).astype(type_.dtype.numpy)
            real, mine = theirs.execute(args), prim(kind, attr, isa=isa, **words).execute(args)
            by = f"{name} {dtype} {theirs.impl_info}"
            tried[by] += 1
            agreed[by] += np.array_equal(real, mine)
            lost += not np.array_equal(real, prim(kind, attr, **words).execute(args))
            if not np.array_equal(real, mine):
                print(by, attr, shape, file=sys.stderr)
    print(json.dumps({"tried": tried, "agreed": agreed, "not exact": lost}))


if __name__ == "__main__":
    main(*sys.argv[1:])
