"""The home of every basic operation on each target: weights, bias, output scale, destination,
post-op, or the store itself.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from laws.formulas import CHANNELS, UNIFIED, V2, V3, composed, conv, store

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
from fqfuse.ir.types import DType
from fqfuse.plan.attributes import Binary, Eltwise, Prelu, Sum

both = pytest.mark.parametrize("target", [V3, V2], ids=["v3", "v2"])
PER_CHANNEL = vec([2.0, 4.0, 8.0])


@both
@pytest.mark.parametrize(
    "values", [vec(2.0), PER_CHANNEL, vec([-1.0, 2.0, 3.0])], ids=["one", "each", "negative"]
)
def test_a_factor_goes_into_weights_and_bias(target, values) -> None:
    found = composed(target, conv(), ScaleBy(values))
    assert found.post_ops == ()
    assert (found.scale == vec([0.5, 0.25, 0.125]) * values).all()
    assert (found.bias == vec([1.0, 2.0, 3.0]) * values).all()


@both
def test_a_shift_goes_into_the_bias(target) -> None:
    found = composed(target, conv(), Shift(PER_CHANNEL))
    assert found.post_ops == ()
    assert found.bias.tolist() == [3.0, 6.0, 11.0]


@both
def test_a_factor_behind_relu_goes_into_the_weights(target) -> None:
    found = composed(target, conv(), EltwiseOp("relu"), ScaleBy(PER_CHANNEL))
    assert found.post_ops == (Eltwise("relu"),)
    assert found.scale.tolist() == [1.0]


def test_a_negative_factor_behind_relu_stays_behind_it() -> None:
    one = composed(V3, conv(), EltwiseOp("relu"), ScaleBy(vec(-2.0)))
    assert one.post_ops == (Eltwise("relu"), Eltwise("linear", -2.0))
    each = composed(V3, conv(), EltwiseOp("relu"), ScaleBy(vec([-2.0, 1.0, 1.0])))
    assert each.post_ops == (Eltwise("relu"), Binary("mul", "conv/post_op1"))
    assert each.constants["conv/post_op1"].shape == (1, 3, 1, 1)
    assert each.scale.tolist() == [0.5, 0.25, 0.125]


def test_v2_has_a_scale_on_eltwise() -> None:
    assert composed(V2, conv(), EltwiseOp("relu"), ScaleBy(vec(-2.0))).post_ops == (
        Eltwise("relu", scale=-2.0),
    )
    assert composed(V2, conv(), EltwiseOp("tanh"), ScaleBy(vec(0.5))).post_ops == (
        Eltwise("tanh", scale=0.5),
    )
    assert composed(V3, conv(), EltwiseOp("tanh"), ScaleBy(vec(0.5))).post_ops == (
        Eltwise("tanh"),
        Eltwise("linear", 0.5),
    )


def test_without_a_scale_in_front_a_factor_is_a_post_op() -> None:
    pooling = Front("pooling", "pool", DType.F32, 4, 1, CHANNELS)
    assert composed(V3, pooling, ScaleBy(vec(2.0)), Shift(vec(1.0))).post_ops == (
        Eltwise("linear", 2.0, 1.0),
    )
    assert composed(V3, pooling, ScaleBy(PER_CHANNEL), Shift(PER_CHANNEL)).post_ops == (
        Binary("mul", "pool/post_op0"),
        Binary("add", "pool/post_op1"),
    )


def test_operations_that_do_nothing_leave_nothing() -> None:
    found = composed(
        V3,
        conv(),
        ScaleBy(vec(1.0)),
        Shift(vec(0.0)),
        Shift(vec([0.0, 0.0, 0.0])),
        Clip(vec(-math.inf), vec(math.inf)),
    )
    assert found.post_ops == ()
    assert found.scale.tolist() == [0.5, 0.25, 0.125]


def test_equal_entries_are_one_value() -> None:
    assert composed(V3, conv(), EltwiseOp("tanh"), ScaleBy(vec([2.0, 2.0, 2.0]))).post_ops == (
        Eltwise("tanh"),
        Eltwise("linear", 2.0),
    )


@pytest.mark.parametrize(
    ("clip", "wanted"),
    [
        (Clip(vec(0.0), vec(6.0)), (Eltwise("clip", 0.0, 6.0),)),
        (Clip(vec(0.0), vec(math.inf)), (Eltwise("relu"),)),
        (Clip(vec(1.0), vec(math.inf)), (Eltwise("clip", 1.0, float(np.finfo(np.float32).max)),)),
        (Clip(vec(-math.inf), vec(1.0)), (Eltwise("clip", -float(np.finfo(np.float32).max), 1.0),)),
        (
            Clip(vec([0.0, 1.0, 2.0]), vec(6.0)),
            (Binary("max", "conv/post_op0"), Binary("min", "conv/post_op1")),
        ),
        (Clip(vec([0.0, 1.0, 2.0]), vec(math.inf)), (Binary("max", "conv/post_op0"),)),
        (Clip(vec(-math.inf), vec([0.0, 1.0, 2.0])), (Binary("min", "conv/post_op0"),)),
    ],
)
def test_the_home_of_a_clip(clip: Clip, wanted: tuple[object, ...]) -> None:
    assert composed(V3, conv(), clip).post_ops == wanted


def test_operations_that_are_post_ops_already() -> None:
    found = composed(
        V3, conv(), EltwiseOp("elu", 0.75), PreluOp("slopes", 2), Round(), BinaryOp("max", "other")
    )
    assert found.post_ops == (
        Eltwise("elu", 0.75),
        Prelu("slopes", 2),
        Eltwise("round"),
        Binary("max", "other"),
    )


# -- the store -------------------------------------------------------------------------------------


def test_v3_divides_by_the_destination_scale() -> None:
    found = composed(V3, conv(), EltwiseOp("tanh"), store(0.5, 7.0))
    assert (found.dst_scale, found.dst_zero_point, found.dst) == (0.5, 7, DType.U8)
    assert found.post_ops == (Eltwise("tanh"),)
    assert found.quantize == "dst_scale"


def test_v2_puts_the_destination_scale_into_the_output_scale() -> None:
    found = composed(V2, conv(), EltwiseOp("relu"), store(0.5, 7.0))
    assert (found.dst_scale, found.dst_zero_point) == (None, 7)
    assert found.scale.tolist() == [1.0, 0.5, 0.25]
    assert found.bias.tolist() == [2.0, 4.0, 6.0]


def test_v2_puts_the_destination_scale_into_the_scale_of_an_eltwise() -> None:
    found = composed(V2, conv(), EltwiseOp("tanh"), store(0.5, 7.0))
    assert found.post_ops == (Eltwise("tanh", scale=2.0),)
    assert found.scale.tolist() == [0.5, 0.25, 0.125], "in front of it: those of the sources alone"


def test_a_factor_in_front_of_the_store_joins_the_destination_scale() -> None:
    found = composed(V3, conv(), EltwiseOp("tanh"), ScaleBy(vec(4.0)), store(0.5))
    assert found.post_ops == (Eltwise("tanh"),)
    assert found.dst_scale == 0.125


def test_a_factor_that_would_overflow_the_destination_scale_stays() -> None:
    found = composed(V3, conv(), EltwiseOp("tanh"), ScaleBy(vec(1e30)), store(1e-20))
    assert found.post_ops == (Eltwise("tanh"), Eltwise("linear", float(np.float32(1e30))))
    assert found.dst_scale == pytest.approx(1e-20)


@both
def test_a_scale_for_each_channel_at_the_destination(target) -> None:
    folded = composed(target, conv(), EltwiseOp("relu"), store([0.5, 0.25, 0.125]))
    assert folded.post_ops == ()
    assert folded.dst_scale is None
    assert folded.scale.tolist() == [1.0]
    behind = composed(target, conv(), EltwiseOp("tanh"), store([0.5, 0.25, 0.125]))
    assert behind.post_ops == (Eltwise("tanh"), Binary("mul", "conv/post_op1"))
    assert behind.quantize == "post_op"


@both
def test_a_zero_point_that_is_no_integer_is_a_shift(target) -> None:
    found = composed(target, conv(scale=vec(1.0), bias=vec(0.0)), store(0.5, 127.5))
    assert found.dst_zero_point is None
    assert found.post_ops == ()
    assert (found.scale.tolist(), found.bias.tolist(), found.dst_scale) == ([2.0], [127.5], None)


@both
def test_zero_points_for_each_channel_are_shifts(target) -> None:
    found = composed(target, conv(), store(0.5, [1.0, 2.0, 3.0]))
    assert found.dst_zero_point is None
    assert found.post_ops == ()
    assert found.dst_scale is None, "what is stored is the code: nothing scales the shift"
    assert found.bias.tolist() == [1 / 0.5 + 1, 2 / 0.5 + 2, 3 / 0.5 + 3]
    assert found.scale.tolist() == [0.5 / 0.5, 0.25 / 0.5, 0.125 / 0.5]


def test_a_narrow_range_keeps_its_clip() -> None:
    """255 levels into s8: the store saturates at -128, the quantizer at -127."""
    found = composed(V3, conv(), store(0.5, 0.0, DType.S8, low=-127))
    assert found.post_ops == (Eltwise("clip", -127.0, 127.0),)
    assert found.dst_scale is None
    whole = composed(V3, conv(), store(0.5, 0.0, DType.S8))
    assert whole.post_ops == ()


def test_a_narrow_range_with_output_scales() -> None:
    found = composed(V2, conv(), store(0.5, 3.0, DType.S8, low=-127, high=100))
    assert found.post_ops == (Eltwise("clip", -130.0, 97.0),)
    assert found.dst_zero_point == 3


@pytest.mark.parametrize(
    ("last", "end", "dropped"),
    [
        (EltwiseOp("relu"), store(0.5, 0.0), True),
        (EltwiseOp("relu"), store(0.5, 1.0), False),
        (EltwiseOp("relu"), store(0.5, 0.5), True),  # rounds to the even 0
        (EltwiseOp("relu"), store(0.5, 1.5), False),
        (EltwiseOp("relu"), store(0.5, -128.0, DType.S8), True),
        (EltwiseOp("relu"), store(0.5, -127.0, DType.S8, low=-127), True),
        (EltwiseOp("relu"), store(0.5, 0.0, DType.S8), False),
        (EltwiseOp("relu"), store(0.5, 3.0, low=3), True),
        (EltwiseOp("relu"), store(-0.5, 255.0), False),
        (EltwiseOp("relu"), store([0.5, 0.25, 1.0], 0.0), True),
        (EltwiseOp("relu"), store([0.5, -0.25, 1.0], 0.0), False),
        (EltwiseOp("relu"), store(0.5, [0.0, 0.0, 1.0]), False),
        (EltwiseOp("relu", 0.125), store(0.5, 0.0), False),
        (Clip(vec(0.0), vec(127.5)), store(0.5, 0.0), True),
        (Clip(vec(0.0), vec(127.0)), store(0.5, 0.0), False),
        (Clip(vec(-1.0), vec(200.0)), store(0.5, 0.0), True),
        (Clip(vec(-64.0), vec(63.5)), store(0.5, 0.0, DType.S8), True),
        (Clip(vec(-63.5), vec(63.5)), store(0.5, 0.0, DType.S8), False),
        (Clip(vec(-63.5), vec(63.5)), store(0.5, 0.0, DType.S8, low=-127), True),
    ],
)
def test_what_the_store_does_anyway_goes(last: BasicOp, end: Store, dropped: bool) -> None:
    def bounded(found: Composed) -> bool:
        return any(
            isinstance(op, Binary) or (isinstance(op, Eltwise) and op.algorithm in ("relu", "clip"))
            for op in found.post_ops
        )

    plain = bounded(composed(V3, conv(), end))
    assert bounded(composed(V3, conv(), last, end)) == (plain or not dropped)


def test_a_quantizer_inside_a_chain_is_written_out() -> None:
    inner = store(0.5, 3.0)
    found = composed(
        V3,
        conv(),
        EltwiseOp("tanh"),
        inner,
        Shift(vec(-3.0)),
        ScaleBy(vec(0.5)),
        EltwiseOp("logistic"),
    )
    assert [op.algorithm for op in found.post_ops if isinstance(op, Eltwise)] == [
        "tanh",
        "linear",
        "round",
        "clip",
        "linear",
        "logistic",
    ]
    assert found.post_ops[1] == Eltwise("linear", 2.0, 3.0)
    assert found.post_ops[4] == Eltwise("linear", 0.5, -1.5)


def test_a_quantizer_between_a_product_and_its_bias() -> None:
    found = composed(
        V3,
        conv(),
        store(0.5, 117.0),
        Shift(vec(-117.0)),
        ScaleBy(vec(0.5)),
        Shift(PER_CHANNEL),
        store(0.25, 121.0),
    )
    assert found.post_ops == (
        Eltwise("round"),
        Eltwise("clip", 0.0, 255.0),
        Eltwise("linear", 2.0),
        Binary("add", "conv/post_op3"),
    )
    assert found.constants["conv/post_op3"].reshape(-1).tolist() == [
        8.0 - 234,
        16.0 - 234,
        32.0 - 234,
    ]
    assert (found.dst_scale, found.dst_zero_point) == (None, 121)
    assert found.scale.tolist() == [1.0, 0.5, 0.25]


# -- the scale of the codes ------------------------------------------------------------------------


def test_the_scale_of_the_codes_is_free_in_the_front() -> None:
    found = composed(V3, conv(), EltwiseOp("relu", 0.25), store(0.5, 3.0))
    assert (found.scale.tolist(), found.bias.tolist()) == ([1.0, 0.5, 0.25], [2.0, 4.0, 6.0])
    assert (found.dst_scale, found.dst_zero_point, found.quantize) == (None, 3, "dst_scale")
    assert found.post_ops == (Eltwise("relu", 0.25),)


@pytest.mark.parametrize("between", [EltwiseOp("tanh"), Round(), BinaryOp("max", "t")])
def test_the_scale_of_the_codes_stays_behind_what_no_factor_passes(between: BasicOp) -> None:
    found = composed(V3, conv(), between, store(0.5, 3.0))
    assert (found.scale.tolist(), found.dst_scale, found.dst_zero_point) == (
        [0.5, 0.25, 0.125],
        0.5,
        3,
    )
    assert len(found.post_ops) == 1


def test_the_scale_of_the_codes_stays_where_the_bias_is_computed() -> None:
    found = composed(V3, replace(conv(), bias=None), store(0.5))
    assert (found.scale.tolist(), found.dst_scale) == ([0.5, 0.25, 0.125], 0.5)


@both
def test_the_scale_of_the_codes_joins_a_factor_in_front_of_a_sum(target) -> None:
    """Two quantizers around an add: the linear of the first has a factor already, and a shift that
    the second scales.
    """
    inner = (store(0.5, 117.0), Shift(vec(-117.0)), ScaleBy(vec(0.5)))
    found = composed(target, conv(), *inner, SKIP, store(0.125))
    assert found.post_ops == (
        Eltwise("round"),
        Eltwise("clip", 0.0, 255.0),
        Eltwise("linear", 4.0, -468.0),
        Sum("skip", 2.0, 3),
    )
    assert found.dst_scale is None


def test_a_factor_beyond_f32_joins_no_other() -> None:
    found = composed(
        V3, conv(), EltwiseOp("tanh"), ScaleBy(vec(2.0**-100)), ScaleBy(vec(2.0**-100))
    )
    assert found.post_ops == (
        Eltwise("tanh"),
        Eltwise("linear", 2.0**-100),
        Eltwise("linear", 2.0**-100),
    )


# -- residual adds ---------------------------------------------------------------------------------

SKIP = Add("skip", DType.U8, 0.25, 3.0, in_place=True)


def test_a_residual_add_in_place_is_a_sum() -> None:
    found = composed(V3, conv(), SKIP, EltwiseOp("relu"), store(0.5))
    assert found.post_ops == (Sum("skip", 0.5, 3),)
    assert found.sums == ("skip",)


def test_v2_scales_the_sum() -> None:
    found = composed(V2, conv(), SKIP, EltwiseOp("relu"), store(0.5))
    assert found.post_ops == (Sum("skip", 0.5, 3),)
    assert found.scale.tolist() == [1.0, 0.5, 0.25]


def test_a_sum_reads_the_other_type() -> None:
    found = composed(V3, conv(), replace(SKIP, dtype=DType.S8), store(0.5))
    assert found.post_ops == (Sum("skip", 0.5, 3, DType.S8),)


@pytest.mark.parametrize(
    ("skip", "end"),
    [
        (replace(SKIP, in_place=False), (store(0.5),)),
        (SKIP, ()),  # u8 codes do not fill an f32 destination
        (replace(SKIP, dtype=DType.F32, zero_point=0.0), (store(0.5),)),
    ],
)
def test_a_residual_add_elsewhere_is_binary(skip: Add, end: tuple[Store, ...]) -> None:
    found = composed(V3, conv(), EltwiseOp("tanh"), skip, *end)
    assert [type(op) for op in found.post_ops if not isinstance(op, Eltwise)] == [Binary]
    assert found.sums == ()


def test_codes_are_added_as_numbers_with_factor_and_shift_around() -> None:
    found = composed(V3, conv(), replace(SKIP, in_place=False), store(0.5))
    assert found.post_ops == (Binary("add", "skip"),)
    assert found.scale.tolist() == [2.0, 1.0, 0.5], "x/k + q in the accumulator"
    assert found.bias.tolist() == [1.0, 5.0, 9.0]
    assert found.dst_scale == 2.0


def test_unified_scales_the_operand() -> None:
    found = composed(UNIFIED, conv(), replace(SKIP, in_place=False), store(0.5))
    (added,) = found.post_ops
    assert isinstance(added, Binary)
    assert added.scale is not None
    assert added.scale.values == (0.25,)
    assert found.scale.tolist() == [0.5, 0.25, 0.125]


def test_one_destination_has_one_sum() -> None:
    found = composed(V3, conv(), SKIP, replace(SKIP, operand="skip2"), store(0.5))
    assert [type(op) for op in found.post_ops].count(Sum) == 1
    assert [op.operand for op in found.post_ops if isinstance(op, Binary)] == ["skip2"]


def test_a_sum_has_an_integer_zero_point() -> None:
    found = composed(V3, conv(), replace(SKIP, zero_point=3.5), store(0.5))
    assert found.post_ops == (Sum("skip", 0.5, 0),)
    assert found.bias.tolist() == [2.0 - 1.75, 4.0 - 1.75, 6.0 - 1.75]
