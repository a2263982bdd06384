"""Formulas in short: a front, a store, and composing operations behind it."""

from __future__ import annotations

from dataclasses import replace

from fqfuse.composer.formula.formula import BasicOp, Store, vec
from fqfuse.composer.mapping.composed import Composed, Front
from fqfuse.composer.mapping.post_ops_composer import PostOpsComposer
from fqfuse.ir.types import DType
from fqfuse.plan.targets import TARGETS, Target

CHANNELS = 3
V3, V2, UNIFIED = TARGETS["onednn-v3"], TARGETS["onednn-v2"], TARGETS["unified"]


def conv(**changes: object) -> Front:
    return replace(
        Front(
            "convolution",
            "conv",
            DType.U8,
            4,
            1,
            CHANNELS,
            vec([0.5, 0.25, 0.125]),
            vec([1.0, 2.0, 3.0]),
        ),
        **changes,
    )


def composed(target: Target, front: Front, *ops: BasicOp | Store) -> Composed:
    composer = PostOpsComposer(target, front)
    assert not any(composer.append([op]) for op in ops)
    return composer.result


def store(
    scale: object = 0.5,
    zero: object = 0.0,
    dtype: DType = DType.U8,
    low: int | None = None,
    high: int | None = None,
) -> Store:
    bounds = dtype.range
    return Store(
        dtype,
        vec(scale),
        vec(zero),
        bounds[0] if low is None else low,
        bounds[1] if high is None else high,
    )
