"""PostOpsComposer: attributes mean exactly what the formula means; every operation has its home; a
refusal changes nothing.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from laws.formulas import CHANNELS, V3, composed, conv, store
from laws.rational import after_all, composed_value, front_value

from fqfuse.composer.formula.formula import (
    Add,
    BasicOp,
    BinaryOp,
    Clip,
    EltwiseOp,
    PreluOp,
    Round,
    ScaleBy,
    Shift,
    Store,
    vec,
)
from fqfuse.composer.mapping.composed import Composed, Front
from fqfuse.composer.mapping.post_ops_composer import PostOpsComposer
from fqfuse.ir.rule import Refusal
from fqfuse.ir.types import DType
from fqfuse.plan.attributes import Binary, Eltwise, Prelu, Sum
from fqfuse.plan.targets import TARGETS

# Powers of two and eighths: every constant that the composer forms is exact, so that ties are exact
# ties.
powers = st.sampled_from([0.5, 2.0, 0.25, 4.0, -1.0, -0.5, 1.0])
eighths = st.integers(-24, 24).map(lambda n: n / 8)


def vectors(entries: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    return entries.map(vec) | st.lists(entries, min_size=CHANNELS, max_size=CHANNELS).map(vec)


@st.composite
def clips(draw: st.DrawFn) -> Clip:
    low = draw(vectors(eighths))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return Clip(vec(-math.inf), low)
    return (
        Clip(low, vec(math.inf))
        if kind == 1
        else Clip(low, vec(low + draw(vectors(st.integers(0, 40).map(lambda n: n / 8)))))
    )


@st.composite
def stores(draw: st.DrawFn) -> Store:
    dtype = draw(st.sampled_from([DType.U8, DType.S8]))
    low, high = dtype.range
    whole = draw(st.integers(0, 3)) > 0
    zeros = (
        st.integers(low, high).map(float)
        if draw(st.integers(0, 3))
        else st.integers(2 * low, 2 * high).map(lambda n: n / 2)
    )
    return Store(
        dtype,
        draw(vectors(powers)),
        draw(st.one_of(st.just(vec(0.0)), zeros.map(vec), vectors(zeros))),
        low if whole else low + draw(st.integers(0, 100)),
        high if whole else high - draw(st.integers(0, 100)),
    )


@st.composite
def residuals(draw: st.DrawFn) -> Add:
    dtype = draw(st.sampled_from([DType.U8, DType.S8, DType.F32]))
    zero = 0.0 if dtype is DType.F32 else draw(st.sampled_from([0.0, 3.0, 128.0, 1.5, -7.0]))
    return Add("skip", dtype, draw(powers), zero, in_place=draw(st.booleans()))


operations = st.one_of(
    vectors(powers).map(ScaleBy),
    vectors(eighths).map(Shift),
    clips(),
    st.sampled_from(
        [
            EltwiseOp("relu"),
            EltwiseOp("relu"),
            EltwiseOp("relu", 0.125),
            EltwiseOp("abs"),
            EltwiseOp("hardsigmoid", 0.25, 0.5),
        ]
    ),
    st.just(PreluOp("slope", 2)),
    st.sampled_from(["add", "sub", "mul", "max", "min"]).map(
        lambda algorithm: BinaryOp(algorithm, "other")
    ),
    residuals(),
    st.just(Round()),
    stores(),
)


@st.composite
def fronts(draw: st.DrawFn) -> Front:
    kind = draw(st.sampled_from(["anchor", "anchor", "binary", "plain"]))
    src = draw(st.sampled_from([DType.U8, DType.F32]))
    if kind == "anchor":
        primitive = draw(st.sampled_from(["convolution", "matmul", "deconvolution"]))
        scale = draw(st.none() | vectors(powers))
        bias = None if draw(st.integers(0, 5)) == 0 else draw(vectors(eighths))
        return Front(
            primitive,
            "step",
            src,
            4,
            draw(st.sampled_from([1, 3])),
            CHANNELS,
            scale,
            bias,
            draw(st.integers(0, 5)) > 0,
        )
    if kind == "binary":
        scale = draw(st.none() | st.just(vec(1.0)))
        return Front(
            "binary",
            "step",
            src,
            4,
            1,
            CHANNELS,
            scale,
            None,
            per_channel=False,
            positive=draw(st.booleans()),
        )
    primitive = draw(
        st.sampled_from(
            ["pooling", "eltwise", "softmax", "layer_normalization", "resampling", "reduction"]
        )
    )
    return Front(primitive, "step", src, 4, 1, CHANNELS)


held = st.fixed_dictionaries(
    {
        "slope": eighths.map(Fraction),
        "other": eighths.map(Fraction),
        "skip": st.integers(0, 127).map(Fraction),
    }
)


@given(
    target=st.sampled_from(list(TARGETS.values())),
    front=fronts(),
    chain=st.lists(operations, max_size=6),
    accumulators=st.lists(st.integers(-300, 300), min_size=1, max_size=4),
    operands=held,
)
@settings(max_examples=6 * settings.default.max_examples)
def test_attributes_mean_what_the_formula_means(
    target, front, chain, accumulators, operands
) -> None:
    assume(sum(isinstance(op, Store) for op in chain) <= 2)
    composer = PostOpsComposer(target, front)
    kept: list[BasicOp | Store] = []
    for op in chain:
        before = (composer.chain, composer.result)
        if composer.append([op]) is None:
            kept.append(op)
        else:
            assert (composer.chain, composer.result) == before, "a refusal changes nothing"
    assert repr(composer.chain) == repr(tuple(kept))
    for accumulator in map(Fraction, accumulators):
        for channel in range(CHANNELS):
            wanted = after_all(
                kept, front_value(front.scale, front.bias, accumulator, channel), channel, operands
            )
            assert (
                composed_value(target, front, composer.result, accumulator, channel, operands)
                == wanted
            )
    check_legal(target, front, composer.result)
    if front.positive and front.scale is not None:
        assert composer.result.scale is not None
        assert (composer.result.scale > 0).all()


def check_legal(target, front: Front, composed: Composed) -> None:
    """The attributes are such as the target has."""
    capability = target.capability(front.primitive)
    kinds = {Eltwise: "eltwise", Binary: "binary", Sum: "sum", Prelu: "prelu"}
    assert {kinds[type(op)] for op in composed.post_ops} <= capability.post_ops
    assert len(composed.post_ops) <= target.max_post_ops
    assert sum(isinstance(op, Sum) for op in composed.post_ops) <= 1, "one destination, one sum"
    assert composed.dst_scale is None or capability.dst_scale
    assert composed.dst_zero_point is None or capability.dst_zero_point
    assert (composed.refusal is None) == (composed.dst in capability.dst.get(front.src, ()))
    for op in composed.post_ops:
        if isinstance(op, Eltwise):
            assert op.scale == 1 or target.eltwise_scale
            assert op.algorithm != "clip" or op.alpha <= op.beta
        if isinstance(op, Binary):
            assert op.scale is None or target.operand_scale
    assert (composed.quantize == "") == (composed.dst is DType.F32)


# -- refusals --------------------------------------------------------------------------------------


def test_a_refusal_leaves_the_composer_as_it_was() -> None:
    composer = PostOpsComposer(V3, Front("pooling", "pool", DType.F32, 4, 1, CHANNELS))
    assert composer.append([EltwiseOp("tanh")]) is None
    before = (composer.chain, composer.result)
    refusal = composer.append([Round(), PreluOp("slopes", 2)])
    assert isinstance(refusal, Refusal)
    assert "no prelu post-op" in refusal.reason
    assert refusal.found == "prelu"
    assert (composer.chain, composer.result) == before
    assert composer.append([EltwiseOp("abs")]) is None, "and it goes on from there"
    assert composer.result.post_ops == (Eltwise("tanh"), Eltwise("abs"))


def test_a_primitive_without_post_ops_refuses_every_operation() -> None:
    composer = PostOpsComposer(V3, Front("layer_normalization", "norm", DType.F32, 3, 2, CHANNELS))
    refusal = composer.append([EltwiseOp("relu")])
    assert isinstance(refusal, Refusal)
    assert refusal.expected == "post-ops: none"


def test_layer_normalization_takes_factors_and_a_zero_point_into_its_parameters() -> None:
    front = Front(
        "layer_normalization", "norm", DType.F32, 3, 2, CHANNELS, vec(1.0), vec([1.0, 2.0, 3.0])
    )
    found = composed(V3, front, ScaleBy(vec(2.0)), store(0.5, 7.0))
    assert found.post_ops == ()
    assert (found.scale.tolist(), found.dst_scale, found.dst_zero_point) == ([4.0], None, None)
    assert found.bias.tolist() == [11.0, 15.0, 19.0]


def test_32_post_ops_and_no_more() -> None:
    composer = PostOpsComposer(V3, conv())
    assert composer.append([EltwiseOp("tanh")] * 32) is None
    refusal = composer.append([EltwiseOp("tanh")])
    assert isinstance(refusal, Refusal)
    assert refusal.found == "33"
    assert "32" in refusal.expected


@pytest.mark.parametrize(
    ("primitive", "src", "dst"),
    [
        ("pooling", DType.U8, DType.S8),
        ("convolution", DType.F32, DType.U8),
        ("eltwise", DType.F32, DType.U8),
    ],
)
def test_a_destination_that_the_primitive_cannot_store(
    primitive: str, src: DType, dst: DType
) -> None:
    found = composed(V3, Front(primitive, "step", src, 4, 1, CHANNELS), store(0.5, 0.0, dst))
    assert isinstance(found.refusal, Refusal)
    assert f"cannot store {dst.value}" in found.refusal.reason
    assert found.refusal.found == dst.value


def test_a_front_without_place_for_factors_keeps_them_behind_a_computed_bias() -> None:
    found = composed(V3, conv(bias=None), ScaleBy(vec(2.0)))
    assert found.scale.tolist() == [0.5, 0.25, 0.125]
    assert found.post_ops == (Eltwise("linear", 2.0),)


def test_a_maximum_takes_positive_factors_only() -> None:
    front = Front(
        "binary", "max", DType.U8, 4, 1, CHANNELS, vec(1.0), None, per_channel=False, positive=True
    )
    assert composed(V3, front, ScaleBy(vec(2.0))).scale.tolist() == [2.0]
    turned = composed(V3, front, ScaleBy(vec(-2.0)))
    assert turned.scale.tolist() == [1.0]
    assert turned.post_ops == (Eltwise("linear", -2.0),)
