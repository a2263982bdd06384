"""Targets as data: which primitive takes which types, scales, zero points and post-ops, and in
which order they apply.

Facts: oneDNN 3.2's CPU implementations for `onednn-v3` (what the headers allow but every
implementation refuses is left out), oneDNN 2.6 for `onednn-v2`; `unified` is the proposal to unify
scaling, which only the NumPy runtime runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..errors import InvalidInput
from ..ir.types import DType
from .attributes import Binary, DepthwiseConv, Eltwise, Prelu, Sum

_INT8 = frozenset({DType.U8, DType.S8})
_F32 = frozenset({DType.F32})
_ANY = _INT8 | _F32


@dataclass(frozen=True)
class Capability:
    """What one primitive of a target takes.

    Attributes:
        src: element types of its source.
        dst: element types of its destination, for each source type.
        output_scale: the result is multiplied by one output scale in front of the post-ops
            (`tensor`), or by one for each index of a dimension, too (`dimension`).
        dst_scale: a per-tensor destination scale, divided out behind the post-ops.
        dst_zero_point: a per-tensor destination zero point.
        src_scale: per-tensor scales on its sources.
        src_zero_point: a per-tensor zero point on its source.
        run_time: scales and zero points of source and weights may be computed at run time; where
            the target has output scales, zero points alone.
        sums: the sums of products of codes may be stored as they are, in s32, without scales, bias
            and post-ops.
        post_ops: kinds of post-ops (`kind` of their classes).
        rnn_qparams: `rnn_data_qparams` and `rnn_weights_qparams`.
        sum_type: a sum reads its operand as another type than the destination's.
        sum_zero_point: a sum subtracts a zero point from its operand.
        sum_converts: a sum has its place where the source has another type than the destination,
            too.
    """

    src: frozenset[DType]
    dst: Mapping[DType, frozenset[DType]]
    output_scale: Literal["", "tensor", "dimension"] = ""
    dst_scale: bool = False
    dst_zero_point: bool = False
    src_scale: bool = False
    src_zero_point: bool = False
    run_time: bool = False
    sums: bool = False
    post_ops: frozenset[str] = frozenset()
    rnn_qparams: bool = False
    sum_type: bool = True
    sum_zero_point: bool = True
    sum_converts: bool = True


@dataclass(frozen=True)
class Target:
    """One set of rules for attributes.

    Attributes:
        name: as users write it.
        scales: `arguments`: one for each argument, bias in the real domain, destination scale
            behind the post-ops; `output`: one output scale on accumulator + bias, and nothing
            behind the post-ops but the zero point.
        operand_scale: the second operand of a binary post-op has a scale and a zero point.
        masks: destinations, and sources that are added or joined, have scales and zero points along any
            dimensions.
        eltwise_scale: an eltwise post-op multiplies its result by a scale.
        fold_dst_scale: the scale of the codes goes into the factors in front of the post-ops where
            it can get there. Those multiply anyway, while a destination scale is one more
            multiplication for each element (measured on oneDNN 3.2: 1 to 4 % of a network).
        legacy_eltwise: eltwise post-ops have the limits of oneDNN 2, see `to_post_ops.py`.
        max_post_ops: how many post-ops a primitive takes.
        comparison_lanes: where the channels are no multiple of it, a binary post-op compares with a
            single number only.
        depthwise_is_slow: why a depthwise convolution is not worth a post-op of the 1x1 convolution
            in front of it; '' where it is.
        primitives: capabilities by primitive name; one that is missing takes f32 and no attributes.
    """

    name: str
    scales: Literal["arguments", "output"]
    eltwise_scale: bool
    max_post_ops: int
    primitives: Mapping[str, Capability]
    operand_scale: bool = False
    masks: bool = False
    fold_dst_scale: bool = False
    legacy_eltwise: bool = False
    comparison_lanes: int = 1
    depthwise_is_slow: str = ""

    def capability(self, primitive: str) -> Capability:
        """What the primitive takes on this target."""
        return self.primitives.get(primitive, _PLAIN)


_PLAIN = Capability(_F32, {DType.F32: _F32})
_COMPUTE_DST = {DType.U8: _ANY, DType.S8: _ANY, DType.F32: _F32}
_SAME = {DType.U8: frozenset({DType.U8}), DType.S8: frozenset({DType.S8}), DType.F32: _F32}
_ALL = {DType.U8: _ANY, DType.S8: _ANY, DType.F32: _ANY}
_GEMM_POST_OPS = frozenset({Eltwise.kind, Binary.kind, Sum.kind, Prelu.kind})
_SIMPLE_POST_OPS = frozenset({"eltwise", "binary"})
_POINTWISE_POST_OPS = _SIMPLE_POST_OPS | {"sum"}

_PRODUCT = Capability(
    _ANY,
    _COMPUTE_DST,
    dst_scale=True,
    dst_zero_point=True,
    src_scale=True,
    src_zero_point=True,
    post_ops=_GEMM_POST_OPS,
)

# What a sum can do as oneDNN 3.2 has it compiled; the rest is refused or a reference
# implementation.
_V3: Mapping[str, Capability] = {
    "convolution": replace(
        _PRODUCT, run_time=True, sums=True, post_ops=_GEMM_POST_OPS | {DepthwiseConv.kind}
    ),
    "deconvolution": replace(_PRODUCT, run_time=True),
    "matmul": replace(_PRODUCT, run_time=True, sums=True),
    "pooling": Capability(
        _ANY, {kind: same | _F32 for kind, same in _SAME.items()}, post_ops=_SIMPLE_POST_OPS
    ),
    "binary": Capability(
        _ANY,
        _ALL,
        src_scale=True,
        post_ops=_POINTWISE_POST_OPS,
        sum_type=False,
        sum_zero_point=False,
        sum_converts=False,
    ),
    "eltwise": Capability(_F32, {DType.F32: _F32}, post_ops=_SIMPLE_POST_OPS),
    "concat": Capability(_ANY, _ALL, src_scale=True),
    "reorder": Capability(
        _ANY,
        _ALL,
        dst_scale=True,
        dst_zero_point=True,
        src_scale=True,
        src_zero_point=True,
        post_ops=frozenset({"sum"}),
    ),
    "softmax": Capability(
        _F32, {DType.F32: _ANY}, dst_scale=True, src_scale=True, post_ops=_SIMPLE_POST_OPS
    ),
    "layer_normalization": Capability(_F32, {DType.F32: _ANY}, dst_scale=True, src_scale=True),
    "resampling": Capability(
        _ANY, _ALL, post_ops=_POINTWISE_POST_OPS, sum_type=False, sum_zero_point=False
    ),
    "reduction": Capability(
        _F32,
        {DType.F32: _ANY},
        post_ops=_POINTWISE_POST_OPS,
        sum_type=False,
        sum_zero_point=False,
        sum_converts=False,
    ),
    "shuffle": Capability(_ANY, _SAME),
    "rnn": Capability(
        frozenset({DType.U8, DType.F32}),
        {DType.U8: frozenset({DType.U8, DType.F32}), DType.F32: _F32},
        rnn_qparams=True,
    ),
}

_V2: Mapping[str, Capability] = {
    **_V3,
    **{
        name: replace(_V3[name], output_scale="dimension", dst_scale=False, src_scale=False)
        for name in ("convolution", "matmul", "reorder")
    },
    "deconvolution": replace(
        _V3["deconvolution"],
        output_scale="dimension",
        dst_scale=False,
        src_scale=False,
        sum_type=False,
    ),
    "pooling": replace(_V3["pooling"], dst=_SAME),
    "concat": Capability(_ANY, _ALL),
    "softmax": Capability(_F32, {DType.F32: _ANY}, "tensor"),
    "layer_normalization": _PLAIN,
}

_UNIFIED: Mapping[str, Capability] = {
    **_V3,
    "pooling": replace(_V3["pooling"], dst=_ALL, dst_scale=True, dst_zero_point=True),
    **dict.fromkeys(
        ("lrn", "batch_normalization"),
        Capability(
            _F32,
            {DType.F32: _ANY},
            dst_scale=True,
            dst_zero_point=True,
            post_ops=_SIMPLE_POST_OPS,
        ),
    ),
    "binary": replace(
        _V3["binary"],
        dst_scale=True,
        dst_zero_point=True,
        sum_type=True,
        sum_zero_point=True,
        sum_converts=True,
    ),
    "concat": replace(_V3["concat"], dst_scale=True, dst_zero_point=True),
    "resampling": replace(
        _V3["resampling"], dst_scale=True, dst_zero_point=True, sum_type=True, sum_zero_point=True
    ),
    "reduction": replace(
        _V3["reduction"],
        dst=_ALL,
        dst_scale=True,
        dst_zero_point=True,
        sum_type=True,
        sum_zero_point=True,
        sum_converts=True,
    ),
    "prelu": Capability(_ANY, _ALL, dst_scale=True, dst_zero_point=True),
    "rnn": replace(_V3["rnn"], src_scale=True, src_zero_point=True, rnn_qparams=False),
    "softmax": replace(_V3["softmax"], dst_zero_point=True),
    "layer_normalization": replace(_V3["layer_normalization"], dst_zero_point=True),
}
"""The proposal's formula, dst = post_ops(op(...)) / dst_scale + dst_zero_point, for every primitive
but eltwise, which is f32, shuffle, which moves codes, and recurrent layers, whose result has the
scale and zero point of the source.
"""

# Measured on the pairs of MobileNetV2, batch 1, AVX-512 VNNI, one and two threads: 3.2 takes
# `ref_fused_convolution` as soon as the depthwise weights have a scale, the two primitives in turn
# (1.03 to 1.3 of their time); without one, and over 2 * L2 bytes in between, `jit_int8_1x1` (0.96,
# and 1.02 with the scale as a binary post-op). 2.6 takes the same two: 1.0 to 1.4, and 0.75 to 0.9
# over 2 * L2.
_SLOW_3_2 = "oneDNN 3.2 runs the post-op as the two primitives in turn, which took 1.03 to 1.3 of their time"
_SLOW_2_6 = "oneDNN 2.6 runs the post-op as the two primitives in turn, in 1.0 to 1.4 of their time, for all but huge results between"

# oneDNN 3.2 accepts a comparison whose operand varies along channels that do not fill its last
# AVX-512 vector, and then cannot generate the code: a convolution, deconvolution or matmul would
# run on NumPy for it. Plans for 2.6 run on 3.2 too.
_LANES = 16

TARGETS: Mapping[str, Target] = {
    "onednn-v3": Target(
        "onednn-v3",
        "arguments",
        False,
        32,
        _V3,
        fold_dst_scale=True,
        comparison_lanes=_LANES,
        depthwise_is_slow=_SLOW_3_2,
    ),
    "onednn-v2": Target(
        "onednn-v2",
        "output",
        True,
        32,
        _V2,
        legacy_eltwise=True,
        comparison_lanes=_LANES,
        depthwise_is_slow=_SLOW_2_6,
    ),
    "unified": Target("unified", "arguments", False, 32, _UNIFIED, operand_scale=True, masks=True),
}


PARAMETERS_OF_2_6: Mapping[str, tuple[float, float]] = {
    "hardswish": (float(np.float32(1 / 6)), 0.5),
    "soft_relu": (1.0, 0.0),
}
"""Eltwise algorithms to which oneDNN 2.6 has no parameters (what it is given it neglects), and those of
oneDNN 3.2 that compute the same.
"""


def check_target(name: object) -> Target:
    """The target of that name.

    Raises:
        InvalidInput: there is none.
    """
    if not isinstance(name, str) or name not in TARGETS:
        raise InvalidInput(
            f"there is no target {name!r}",
            where="target",
            hint=f"choose one of {', '.join(sorted(TARGETS))}",
        )
    return TARGETS[name]
