"""FakeQuantize in every position x every form of its ranges: the steps of the plan, and its numbers
on both runtimes.

The numbers are held to the interval that the imported graph gives when every f32 rounding is
widened outward, which at a code's tie and at a jump holds both sides. The oneDNN runtime, which
computes transcendental functions its own way, may be 1 code further.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from laws.build import Net, Value
from laws.contracts import GRANTED
from laws.intervals import Box, run_boxes
from laws.registry import feeds_for
from laws.runtimes import EACH_RUNTIME

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType
from fqfuse.passes import optimize
from fqfuse.plan.attributes import ZeroPoint
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan
from fqfuse.plan.verify import verify_plan
from fqfuse.runtime.session import InferenceSession

Quantizer = Callable[[Net, Value], Value]


# -- the forms of a range --------------------------------------------------------------------------


def along(*values: float) -> np.ndarray:
    """One number for each of four channels."""
    return np.asarray(values).reshape(1, 4, 1, 1)


def quantizer(*ranges: object, levels: int = 256) -> Quantizer:
    return lambda n, x: n.fq(x, *ranges, levels=levels)  # type: ignore[arg-type]


RANGES: dict[str, Quantizer] = {
    "u8": quantizer(0.0, 255 / 64),
    "s8": quantizer(-2.0, 127 / 64),
    "u8 with a zero point": quantizer(-1.0, 191 / 64),
    **{
        f"{levels} levels": quantizer(
            -(levels // 2) / 4, (levels - 1 - levels // 2) / 4, levels=levels
        )
        for levels in (2, 3, 15, 16, 127)
    },
    "255 levels": quantizer(-127 / 64, 127 / 64, levels=255),
    "narrow u8": quantizer(0.0, 100 / 32, levels=101),
    "output differs": quantizer(-2.0, 127 / 64, -1.0, 127 / 128),
    "output inverted": quantizer(-2.0, 127 / 64, 127 / 64, -2.0),
    "inverted": quantizer(1.0, -1.0, -1.0, 127 / 128),
    "two levels symmetric": quantizer(-1.0, 1.0, levels=2),
    "threshold": quantizer(0.5, 0.5, -1.0, 1.0, levels=2),
    "threshold at zero": quantizer(0.0, 0.0, 0.0, 1.0, levels=2),
    "threshold of subnormal numbers": quantizer(-3e-43, -2e-43, 0.0, 1.0, levels=2),
    "threshold far from zero": quantizer(1e9, 1e9 + 128, 0.0, 1.0, levels=2),
    "threshold of 256 levels": quantizer(0.25, 0.25, 0.0, 2.0),
    "constant output": quantizer(-1.0, 1.0, 0.5, 0.5),
    "shift too small to matter": quantizer(-1e-7, 4.0),
    "zero point no integer": quantizer(-1.0, 1.0),
    "without zero": quantizer(0.5, 3.5),
    "per channel": quantizer(along(0, 0, 0, 0), along(1, 2, 3, 4) * 255 / 256),
    "input per channel": quantizer(
        along(-1, -2, -3, -4), along(1, 2, 3, 4) * 127 / 128, -1.0, 127 / 128
    ),
    "output per channel": quantizer(
        -2.0, 127 / 64, along(-1, -2, -3, -4), along(1, 2, 3, 4) * 127 / 128
    ),
    "each channel another form": quantizer(
        along(0, 1, 0.5, -1), along(2, -1, 0.5, 1), along(0, 0, 0, 0), along(1, 1, 1, 0)
    ),
    "1024 levels": quantizer(-2.0, 511 / 256, levels=1024),
    "u16": lambda n, x: n.qdq(x, 2**-14, 32767, DType.U16),
    "s16": lambda n, x: n.qdq(x, 0.0001, 0, DType.S16),
}
WIDE = ("1024 levels", "u16", "s16")


# -- the positions ---------------------------------------------------------------------------------


def source(n: Net) -> Value:
    """Codes, decoded, four channels."""
    return n.qdq(n.input(("N", 4, 4, 4)), 2**-5, 128)


def conv(n: Net, x: Value, kernel: int = 1, **options: object) -> Value:
    return n.conv(x, 4, kernel, scale=2**-8, **options)  # type: ignore[arg-type]


def last(n: Net, fq: Quantizer) -> Value:
    return fq(n, conv(n, source(n), 3))


def last_behind_a_bias(n: Net, fq: Quantizer) -> Value:
    return fq(n, conv(n, source(n), bias=[0.5, -0.25, 0.0, 1.0]))


def alone(n: Net, fq: Quantizer) -> Value:
    return fq(n, n.input(("N", 4, 4, 4)))


def first(n: Net, fq: Quantizer) -> Value:
    return n.op("Relu", conv(n, fq(n, n.input(("N", 4, 4, 4)))))


def between_two_convolutions(n: Net, fq: Quantizer) -> Value:
    return conv(n, fq(n, n.op("Relu", conv(n, source(n)))))


def before_a_padded_convolution(n: Net, fq: Quantizer) -> Value:
    return conv(n, fq(n, n.op("Relu", conv(n, source(n)))), 3)


def middle_of_a_chain(n: Net, fq: Quantizer) -> Value:
    return n.q(n.op("Tanh", fq(n, conv(n, source(n)))), 2**-7, 128)


def twice_in_a_row(n: Net, fq: Quantizer) -> Value:
    return n.fq(fq(n, conv(n, source(n))), -1.0, 127 / 128)


def twice_in_a_row_the_other_way(n: Net, fq: Quantizer) -> Value:
    return fq(n, n.fq(conv(n, source(n)), -1.0, 127 / 128))


def before_the_bias(n: Net, fq: Quantizer) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-5, 128)
    product = conv(n, x)
    return n.q(
        n.op("Add", fq(n, product), np.asarray([0.5, -0.25, 0.0, 1.0]).reshape(1, 4, 1, 1)),
        2**-5,
        128,
    )


def before_an_add(n: Net, fq: Quantizer) -> Value:
    x = source(n)
    return n.q(n.op("Add", fq(n, conv(n, x)), x), 2**-4, 128)


def on_both_inputs_of_an_add(n: Net, fq: Quantizer) -> Value:
    x = source(n)
    return n.q(n.op("Relu", n.op("Add", fq(n, conv(n, x)), fq(n, conv(n, x)))), 2**-4, 3)


def behind_an_add(n: Net, fq: Quantizer) -> Value:
    x = source(n)
    return fq(n, n.op("Add", conv(n, x), x))


def on_a_concat(n: Net, fq: Quantizer) -> Value:
    x = source(n)
    return n.op("Concat", fq(n, conv(n, x)), fq(n, conv(n, x)), axis=1)


def on_a_concat_of_another_scale(n: Net, fq: Quantizer) -> Value:
    x = source(n)
    joined = n.op("Concat", fq(n, conv(n, x)), n.fq(conv(n, x), -4.0, 127 / 32), axis=1)
    return n.conv(joined, 2, 1, scale=2**-8)


def behind_a_max_pool(n: Net, fq: Quantizer) -> Value:
    return fq(n, n.op("MaxPool", conv(n, source(n)), kernel_shape=(2, 2)))


def before_a_max_pool(n: Net, fq: Quantizer) -> Value:
    return conv(n, n.op("MaxPool", fq(n, conv(n, source(n))), kernel_shape=(2, 2)))


def behind_an_average(n: Net, fq: Quantizer) -> Value:
    return fq(n, n.op("AveragePool", source(n), kernel_shape=(2, 2)))


def before_an_average(n: Net, fq: Quantizer) -> Value:
    return n.op("GlobalAveragePool", fq(n, conv(n, source(n))))


def returned_and_read(n: Net, fq: Quantizer) -> tuple[Value, ...]:
    y = fq(n, n.op("Relu", conv(n, source(n))))
    return y, conv(n, y)


def several_consumers(n: Net, fq: Quantizer) -> tuple[Value, ...]:
    y = fq(n, n.op("Relu", conv(n, source(n))))
    return conv(n, y), conv(n, y, 3), n.op("Softmax", y, axis=1)


def several_quantizers_on_one_value(n: Net, fq: Quantizer) -> tuple[Value, ...]:
    y = n.op("Relu", conv(n, source(n)))
    return conv(n, fq(n, y)), conv(n, n.fq(y, 0.0, 255 / 128))


POSITIONS: dict[str, Callable[[Net, Quantizer], Value | tuple[Value, ...]]] = {
    build.__name__: build
    for build in (
        last,
        last_behind_a_bias,
        first,
        between_two_convolutions,
        before_a_padded_convolution,
        middle_of_a_chain,
        twice_in_a_row,
        twice_in_a_row_the_other_way,
        before_the_bias,
        before_an_add,
        on_both_inputs_of_an_add,
        behind_an_add,
        on_a_concat,
        on_a_concat_of_another_scale,
        behind_a_max_pool,
        before_a_max_pool,
        behind_an_average,
        before_an_average,
        returned_and_read,
        several_consumers,
        several_quantizers_on_one_value,
    )
}

ACTIVATIONS: dict[str, tuple[str, dict[str, object]]] = {
    "relu": ("Relu", {}),
    "sigmoid": ("Sigmoid", {}),
    "tanh": ("Tanh", {}),
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
    "swish": ("Swish", {"alpha": 1.0}),
    "hardswish": ("HardSwish", {}),
    "mish": ("Mish", {}),
    "elu": ("Elu", {"alpha": 1.0}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.125}),
    "prelu": ("PRelu", {}),
    "clip": ("Clip", {}),
}


def activation(n: Net, name: str, x: Value) -> Value:
    op, attrs = ACTIVATIONS[name]
    constants = {"prelu": [along(0.5, 0.25, -0.5, 2.0)[0]], "clip": [-0.5, 2.5]}.get(name, [])
    return n.op(op, x, *constants, **attrs)


def _around(name: str, *, behind: bool) -> Callable[[Net, Quantizer], Value]:
    def build(n: Net, fq: Quantizer) -> Value:
        y = conv(n, source(n))
        return fq(n, activation(n, name, y)) if behind else activation(n, name, fq(n, y))

    return build


POSITIONS |= {f"behind_{name}": _around(name, behind=True) for name in ACTIVATIONS}
POSITIONS |= {f"before_{name}": _around(name, behind=False) for name in ACTIVATIONS}


EVERYWHERE = POSITIONS | {"alone": alone}


@cache
def case(position: str, form: str) -> tuple[Graph, dict[str, np.ndarray], dict[str, Box], Plan]:
    n = Net(seed=3)
    outputs = EVERYWHERE[position](n, RANGES[form])
    graph = n.done(*((outputs,) if isinstance(outputs, str) else outputs))
    feeds = feeds_for(graph)
    return graph, feeds, run_boxes(graph, feeds, GRANTED), plan_from_graph(optimize(graph.copy()))


@EACH_RUNTIME
@pytest.mark.parametrize("form", RANGES)
@pytest.mark.parametrize("position", EVERYWHERE)
def test_numbers(position: str, form: str, runtime: str) -> None:
    _, feeds, boxes, plan = case(position, form)
    assert verify_plan(plan) == []
    for name, found in zip(
        plan.outputs, InferenceSession(plan, runtime, 1).run(None, feeds), strict=True
    ):
        codes = found.dtype.kind in "iu"
        slack = (
            float(codes and runtime == "onednn")
            if codes
            else 1e-6 + 1e-6 * np.abs(found).max(initial=0)
        )
        assert boxes[name].outside(found) <= slack, print_plan(plan, data="digest")


# -- the steps -------------------------------------------------------------------------------------

_CONVOLUTION = ("reorder", "convolution")
_TWO = ("reorder", "convolution", "convolution")

STEPS: dict[str, tuple[str, ...]] = {
    # input quantizer, and one primitive with everything behind it
    **dict.fromkeys(POSITIONS, _CONVOLUTION),
    "between_two_convolutions": _TWO,
    "before_a_padded_convolution": _TWO,
    "on_both_inputs_of_an_add": _TWO,
    # the concatenation is returned: what decodes it has no other home
    "on_a_concat": (
        *_TWO,
        "concat",
        "reorder",
    ),
    # a product for each scale, the second adds the first
    "on_a_concat_of_another_scale": (
        *_TWO,
        "convolution",
        "convolution",
    ),
    # the quantizer moves in front of the pool
    "behind_a_max_pool": (
        *_CONVOLUTION,
        "pooling",
        "reorder",
    ),
    "before_a_max_pool": (*_CONVOLUTION, "pooling", "convolution"),
    "before_an_average": (*_CONVOLUTION, "pooling"),
    "returned_and_read": (*_CONVOLUTION, "reorder", "convolution"),
    "several_consumers": (*_CONVOLUTION, "reorder", "convolution", "convolution", "softmax"),
    "first": ("reorder", "convolution"),
    # an average of codes that is read in f32 is stored so, its quantizer among the post-ops
    "behind_an_average": ("reorder", "pooling"),
    "several_quantizers_on_one_value": (
        *_CONVOLUTION,
        "reorder",
        "reorder",
        "convolution",
        "convolution",
    ),
}

FRACTIONAL = ("zero point no integer", "without zero")
COMPARED = (
    "inverted",
    "two levels symmetric",
    "threshold",
    "threshold at zero",
    "threshold of subnormal numbers",
    "threshold far from zero",
    "threshold of 256 levels",
    "constant output",
    "each channel another form",
)
NARROW = ("2 levels", "3 levels", "15 levels", "16 levels", "127 levels", "255 levels", "narrow u8")
DECODED_PER_CHANNEL = ("per channel", "output per channel", "each channel another form")
ZERO_POINT = (
    "u8",
    "u8 with a zero point",
    "narrow u8",
    "output inverted",
    "shift too small to matter",
    "per channel",
)

OTHER_STEPS: dict[tuple[str, str], tuple[str, ...]] = {
    # Codes in a part of 8 bits, comparisons and fractional zero points need post-ops, which a
    # reorder has not: a binary with a constant.
    **{("first", form): ("binary", "convolution") for form in (*NARROW, *COMPARED, *FRACTIONAL)},
    **{
        ("several_quantizers_on_one_value", form): (
            *_CONVOLUTION,
            "binary",
            "reorder",
            "convolution",
            "convolution",
        )
        for form in (*NARROW, *COMPARED, *FRACTIONAL)
    },
    # A source with one scale for each channel is no int8 source: it is decoded on its own.
    **{
        ("between_two_convolutions", form): (*_CONVOLUTION, "reorder", "convolution")
        for form in DECODED_PER_CHANNEL
    },
    **{
        ("before_a_padded_convolution", form): (*_CONVOLUTION, "reorder", "convolution")
        for form in DECODED_PER_CHANNEL
    },
    **{
        ("on_both_inputs_of_an_add", form): (*_CONVOLUTION, "reorder", "convolution")
        for form in DECODED_PER_CHANNEL
    },
    **{
        ("first", form): ("reorder", "reorder", "convolution")
        for form in ("per channel", "output per channel")
    },
    ("first", "each channel another form"): ("binary", "reorder", "convolution"),
    **{
        ("several_quantizers_on_one_value", form): (
            *_CONVOLUTION,
            "reorder",
            "reorder",
            "reorder",
            "convolution",
            "convolution",
        )
        for form in ("per channel", "output per channel")
    },
    ("several_quantizers_on_one_value", "each channel another form"): (
        *_CONVOLUTION,
        "binary",
        "reorder",
        "reorder",
        "convolution",
        "convolution",
    ),
    # Fractional zero points, and several along one axis, are shifts: decoding is a binary with a
    # constant.
    **{
        (position, form): (*STEPS[position][:at], "binary", *STEPS[position][at + 1 :])
        for position, at in (
            ("on_a_concat", 4),
            ("behind_a_max_pool", 3),
            ("returned_and_read", 2),
            ("several_consumers", 2),
        )
        for form in FRACTIONAL
    },
    # Parts with a scale for each channel have no product of one scale.
    ("on_a_concat_of_another_scale", "per channel"): (*_TWO, "concat", "binary", "convolution"),
    ("on_a_concat_of_another_scale", "output per channel"): (
        *_TWO,
        "concat",
        "reorder",
        "convolution",
    ),
    ("on_a_concat_of_another_scale", "each channel another form"): (
        *_TWO,
        "concat",
        "binary",
        "convolution",
    ),
    # Codes of several scales are decoded in front of an average in f32.
    **{
        ("before_an_average", form): (*_CONVOLUTION, "reorder", "pooling")
        for form in ("per channel", "output per channel", "each channel another form")
    },
    # A quantizer that is per channel, or not monotone, stays behind the pool, which then runs in
    # f32 and takes it as post-ops.
    **{
        ("behind_a_max_pool", form): (*_CONVOLUTION, "pooling")
        for form in (*COMPARED, "per channel", "input per channel")
    },
    # More levels than 8 bits hold make no codes: values in f32, by post-ops.
    **{
        (position, form): steps
        for position, steps in {
            "first": ("eltwise", "convolution"),
            "on_a_concat": (*_TWO, "concat"),
            "on_a_concat_of_another_scale": (*_TWO, "reorder", "concat", "convolution"),
            "behind_a_max_pool": (*_CONVOLUTION, "pooling"),
            "returned_and_read": _TWO,
            "several_consumers": (*_TWO, "convolution", "softmax"),
            "several_quantizers_on_one_value": (
                *_CONVOLUTION,
                "reorder",
                "eltwise",
                "convolution",
                "convolution",
            ),
        }.items()
        for form in WIDE
    },
}
"""Where a form needs other steps than the position's, and why."""


@pytest.mark.parametrize("form", RANGES)
@pytest.mark.parametrize("position", POSITIONS)
def test_steps(position: str, form: str) -> None:
    found = tuple(step.primitive for step in case(position, form)[3].steps)
    wanted = OTHER_STEPS.get((position, form), STEPS[position])
    # which of the two quantizers comes first means nothing
    if position == "several_quantizers_on_one_value":
        found, wanted = tuple(sorted(found)), tuple(sorted(wanted))
    assert found == wanted


@pytest.mark.parametrize("form", RANGES)
def test_the_next_convolution_reads_codes(form: str) -> None:
    """Behind every form but those whose source no int8 product takes: scales for each channel, and
    more levels than codes.
    """
    plan = case("between_two_convolutions", form)[3]
    in_f32 = form in (*DECODED_PER_CHANNEL, *WIDE)
    assert plan.type(plan.steps[-1].arg("src")).dtype.is_integer == (not in_f32)


@pytest.mark.parametrize("form", FRACTIONAL)
def test_a_fraction_of_a_zero_point_is_in_the_bias_of_a_plan_where_no_padding_reads_it(
    form: str,
) -> None:
    """Padding is the real 0, which has no code here: each position has a bias of its own, and the
    plan has the zero point.
    """
    inner, padded = (
        case(position, form)[3].steps[-1].attr.zero_points.get("src", ZeroPoint((0,)))
        for position in ("between_two_convolutions", "before_a_padded_convolution")
    )
    assert inner.fraction == 0
    assert padded.fraction != 0
