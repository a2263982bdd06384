"""Plans for `onednn-v2` converted to `onednn-v3`: mechanically the same numbers, semantically what
the compiler writes for v3 itself.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import cast

import numpy as np
import pytest
from hypothesis import assume, given
from laws.budget import examples
from laws.corpus import CORPUS
from laws.registry import feeds_for
from support.plan_strategies import plans, tame

from fqfuse import compile as compile_model
from fqfuse.composer.compose import plan_from_graph
from fqfuse.errors import InvalidInput, PlanError
from fqfuse.ir.decision import DequantizeFate, Fate, Half, Outcome, QuantizeFate, Quantizer
from fqfuse.ir.types import DType, Quantization, TensorType
from fqfuse.models.digits import DigitsForm, digits_model_path, digits_test_set
from fqfuse.passes import optimize
from fqfuse.plan.attributes import (
    Binary,
    DepthwiseConv,
    Eltwise,
    PostOp,
    PrimitiveAttr,
    Scale,
    Sum,
    ZeroPoint,
)
from fqfuse.plan.conversion.convert import Conversion, convert, convert_steps
from fqfuse.plan.file import read_plan, save_plan
from fqfuse.plan.targets import TARGETS, Target
from fqfuse.plan.types import Plan, Step
from fqfuse.plan.verify import verify_plan
from fqfuse.runtime.numpy_runtime import run_step
from fqfuse.runtime.session import InferenceSession

U8, F32 = DType.U8, DType.F32
RULE = "v2 attributes to v3"


@cache
def plan_of(name: str, target: str = "onednn-v2") -> Plan:
    return plan_from_graph(optimize(CORPUS[name]().copy()), target)


def pairs(
    plan: Plan, converted: Plan, feeds: dict[str, np.ndarray]
) -> list[tuple[Step, np.ndarray, np.ndarray]]:
    """Each step of both plans on the same inputs: (step, the v2 plan's result, the converted
    plan's).
    """
    live = {**feeds, **InferenceSession(plan, "numpy", 1).run_steps(feeds)}
    found = []
    for old, new in zip(plan.steps, converted.steps, strict=True):
        assert old.outputs == new.outputs
        given_old = {value: live[value] for value in old.inputs if value not in plan.constants}
        given_new = {value: live[value] for value in new.inputs if value not in converted.constants}
        found += [
            (old, a, b)
            for a, b in zip(
                run_step(plan, old, given_old), run_step(converted, new, given_new), strict=True
            )
        ]
    return found


# -- mechanical ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CORPUS)
def test_mechanically_every_step_gives_the_same_numbers(name: str) -> None:
    plan = plan_of(name)
    converted = convert(plan)
    assert convert(converted, "unified").steps == convert(plan, "unified").steps
    assert not [step for step in converted.steps if step.attr.output_scales is not None]
    for to in ("onednn-v3", "unified"):
        converted = convert(plan, to)
        assert converted.target == converted.options["target"] == to
        for step, old, new in pairs(plan, converted, feeds_for(CORPUS[name]())):
            # equal numbers: a zero may change its sign in linear(s, 0)
            np.testing.assert_array_equal(old, new, err_msg=step.name)


@examples(100)
@given(plans())
def test_mechanically_random_plans_give_the_same_numbers(plan: Plan) -> None:
    assume(plan.target == "onednn-v2")
    assume(not any(step.op == "Onnx" for step in plan.steps))
    plan = tame(plan)
    rng = np.random.default_rng(1)
    shape = [2 if isinstance(dim, str) else dim for dim in plan.type(plan.inputs[0]).shape or ()]
    for step, old, new in pairs(
        plan, convert(plan), {plan.inputs[0]: rng.normal(0, 3, shape).astype(np.float32)}
    ):
        np.testing.assert_array_equal(old, new, err_msg=step.name)


def test_the_plan_itself_stays() -> None:
    plan = plan_of("digits_qdq")
    before = plan_from_graph(optimize(CORPUS["digits_qdq"]()), "onednn-v2")
    convert(plan, how="semantic")
    assert plan == before


# -- semantic --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CORPUS)
def test_semantically_every_step_is_at_most_one_code_away(name: str) -> None:
    plan = plan_of(name)
    codes = apart = 0
    for step, old, new in pairs(plan, convert(plan, how="semantic"), feeds_for(CORPUS[name]())):
        if old.dtype.kind in "iu":
            gap = np.abs(old.astype(np.int64) - new.astype(np.int64))
            assert gap.max(initial=0) <= 1, step.name
            codes, apart = codes + gap.size, apart + int(np.count_nonzero(gap))
        # factors are formed anew and applied in another place: a few f32 roundings of the largest
        # value
        else:
            np.testing.assert_allclose(
                new,
                old,
                rtol=0,
                atol=2e-6 * float(np.abs(old).max(initial=0)) + 1e-30,
                err_msg=step.name,
            )
    assert apart <= 0.02 * codes + 1, "codes differ next to ties only"


@pytest.mark.parametrize("form", ["fakequantize", "qdq"])
def test_semantically_the_digits_plan_is_the_one_compiled_for_v3(
    form: DigitsForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the scales of codes, which the compiler folds into factors in front of the post-ops,
    and a conversion leaves apart.
    """
    converted = convert(compile_model(digits_model_path(form), target="onednn-v2"), how="semantic")
    monkeypatch.setitem(
        cast("dict[str, Target]", TARGETS),
        "onednn-v3",
        replace(TARGETS["onednn-v3"], fold_dst_scale=False),
    )
    wanted = compile_model(digits_model_path(form))
    for mine, theirs in zip(converted.steps, wanted.steps, strict=True):
        assert (mine.name, mine.primitive, mine.outputs, mine.params) == (
            theirs.name,
            theirs.primitive,
            theirs.outputs,
            theirs.params,
        )
        assert mine.attr.zero_points == theirs.attr.zero_points
        assert [type(op) for op in mine.attr.post_ops] == [type(op) for op in theirs.attr.post_ops]
        assert mine.attr.scales.keys() == theirs.attr.scales.keys()
        for role, scale in theirs.attr.scales.items():
            assert mine.attr.scales[role].mask == scale.mask
            assert mine.attr.scales[role].values == pytest.approx(scale.values, rel=2.0**-21)
        if (bias := theirs.arg("bias")) is not None:
            real = converted.constants[mine.arg("bias") or ""]
            np.testing.assert_allclose(real, wanted.constants[bias], rtol=2.0**-20, atol=1e-7)
    images, labels = digits_test_set()
    (logits,) = InferenceSession(converted, "numpy", 1).run(None, {"image": images})
    assert np.mean(logits.argmax(1) == labels) >= 0.97


def one(
    op: PostOp | None, *more: PostOp, dst: DType = U8, bias: bool = True, scale: float = 2.0**-6
) -> Plan:
    """A convolution with two channels and these post-ops, written by hand for v2; codes decode by
    0.5, in and out.
    """
    post_ops = tuple(p for p in (op, *more) if p is not None)
    args = (("src", "x"), ("weights", "w"), *([("bias", "b")] if bias else []))
    attr = PrimitiveAttr({}, {"src": ZeroPoint((3,))}, post_ops, Scale((scale, scale * 3), 2))
    params = {
        "kernel_shape": (1, 1),
        "pads": (0,) * 4,
        "strides": (1, 1),
        "dilations": (1, 1),
        "group": 1,
        "auto_pad": "NOTSET",
    }
    step = Step("c", "convolution", "Conv", args, ("y",), params, attr, ("conv",))
    quant = Quantization.of(0.5)
    values = {
        "x": TensorType(U8, (1, 4, 5, 5), quant),
        "y": TensorType(dst, (1, 2, 5, 5), quant if dst.is_integer else None),
    }
    rng = np.random.default_rng(2)
    constants = {
        "w": rng.integers(-9, 10, (2, 4, 1, 1)).astype(np.int8),
        "b": np.array([100, -60], np.float32),
        "operand": np.array([2, -3], np.float32).reshape(1, 2, 1, 1),
        "dw": rng.integers(-9, 10, (2, 1, 3, 3)).astype(np.int8),
        "db": np.array([7, -300], np.float32),
    }
    if "old" in step.inputs:
        values["old"] = TensorType(dst, (1, 2, 5, 5))
    used = {name: data for name, data in constants.items() if name in step.inputs}
    return Plan(
        "one",
        "onednn-v2",
        tuple(name for name in values if name != "y"),
        ("y",),
        values,
        used,
        (step,),
    )


def converted_step(plan: Plan) -> tuple[Plan, Step]:
    converted = convert(plan, how="semantic")
    data = np.random.default_rng(3).integers(0, 256, (1, 4, 5, 5)).astype(np.uint8)
    for _, old, new in pairs(plan, converted, {"x": data}):
        np.testing.assert_array_equal(old, new)  # all factors are powers of two here
    return converted, converted.steps[0]


def test_scales_are_taken_apart_and_the_bias_becomes_real() -> None:
    converted, step = converted_step(one(None))
    assert step.attr.scales == {
        "src": Scale((0.5,)),
        "weights": Scale((2.0**-6, 3 * 2.0**-6), 1),
        "dst": Scale((0.5,)),
    }
    np.testing.assert_array_equal(converted.constants["b/real"], np.float32([100, -180]) * 2.0**-7)
    assert "b" not in converted.constants, "nothing reads the old bias"


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (Eltwise("relu"), (Eltwise("relu"),)),
        (Eltwise("relu", 0.25), (Eltwise("relu", 0.25),)),
        (Eltwise("clip", -4.0, 60.0), (Eltwise("clip", -2.0, 30.0),)),
        (Eltwise("clip", -4.0, 60.0, 2.0), (Eltwise("clip", -4.0, 60.0),)),
        (Eltwise("relu", 0.0, 0.0, 4.0), (Eltwise("relu"),)),
        (Eltwise("linear", 4.0, 8.0), (Eltwise("linear", 1.0, 4.0),)),
        (  # a zero point far from 0
            Eltwise("linear", 1.0, -200.0, 4.0),
            (Eltwise("linear", 1.0, -200.0), Eltwise("linear", 2.0, 0.0)),
        ),
        (Eltwise("hardswish", 1 / 6, 0.5, 2.0), (Eltwise("hardswish", 1 / 6, 0.5),)),
        (
            Eltwise("hardswish", 1 / 6, 0.5, 4.0),
            (Eltwise("hardswish", 1 / 6, 0.5), Eltwise("linear", 2.0, 0.0)),
        ),
        (Eltwise("relu", 0.0, 0.0, -1.0), (Eltwise("relu"), Eltwise("linear", -0.5, 0.0))),
        (Eltwise("round"), (Eltwise("round"), Eltwise("linear", 0.5, 0.0))),
        (Binary("add", "operand"), (Binary("add", "operand/real"),)),
        (Binary("max", "operand"), (Binary("max", "operand/real"),)),
        (Binary("mul", "operand"), (Binary("mul", "operand"),)),
        (Binary("ge", "operand"), (Binary("ge", "operand"), Eltwise("linear", 0.5, 0.0))),
    ],
    ids=str,
)
def test_post_ops_in_the_real_domain(
    op: Eltwise | Binary, expected: tuple[Eltwise | Binary, ...]
) -> None:
    converted, step = converted_step(one(op))
    assert step.attr.post_ops == expected
    if "operand/real" in converted.constants:
        np.testing.assert_array_equal(
            converted.constants["operand/real"].ravel(), np.float32([1, -1.5])
        )


def test_a_function_of_real_numbers_ends_the_quanta() -> None:
    """gelu sees real numbers, 1/0.5 behind it brings the quanta: neither the weights nor gelu hold
    a trace of the destination's scale.
    """
    converted = convert(one(Eltwise("gelu_erf", 0.0, 0.0, 2.0)), how="semantic")
    assert converted.steps[0].attr.post_ops == (Eltwise("gelu_erf"),)
    assert converted.steps[0].attr.scales["weights"] == Scale((2.0**-5, 3 * 2.0**-5), 1)


def test_real_numbers_have_no_destination_scale() -> None:
    _, step = converted_step(one(Eltwise("relu"), dst=F32))
    assert step.attr.scales == {"src": Scale((0.5,)), "weights": Scale((2.0**-5, 3 * 2.0**-5), 1)}


# -- what is said, and refused ---------------------------------------------------------------------


def test_decisions_say_which_way_it_went() -> None:
    plan = one(Eltwise("relu"))
    (decision,) = convert(plan, how="semantic").decision_records
    assert (decision.rule, decision.subject, decision.outcome) == (RULE, "conv", Outcome.FIRED)
    assert decision.reason == "semantic: convolution c"
    assert convert(plan).decision_records[0].reason == "mechanical: convolution c"


def test_codes_that_nothing_decodes_keep_the_mechanical_way() -> None:
    plan = one(Eltwise("relu"))
    bare = replace(plan, values={**plan.values, "x": TensorType(U8, (1, 4, 5, 5))})
    converted = convert(bare, how="semantic")
    (decision,) = converted.decision_records
    assert decision.outcome is Outcome.REFUSED
    assert "is converted mechanically: a type does not say" in decision.reason
    assert converted.steps == convert(bare).steps


def test_a_scale_outside_f32_keeps_the_mechanical_way() -> None:
    (decision,) = convert(one(None, scale=1e-38), how="semantic").decision_records
    assert "a number leaves f32's range" in decision.reason
    assert decision.found == "5e-39"


def test_a_converted_plan_is_saved_and_read(tmp_path) -> None:
    for how in ("mechanical", "semantic"):
        converted = convert(plan_of("digits_qdq"), how=how)
        save_plan(converted, tmp_path / "plan.onnx")
        assert read_plan(tmp_path / "plan.onnx") == converted
        assert converted.options["converted"] == how


def test_wrong_calls() -> None:
    with pytest.raises(InvalidInput, match="only plans for onednn-v2"):
        convert(plan_of("digits_qdq", "onednn-v3"))
    with pytest.raises(InvalidInput, match="no conversion 'literal'"):
        convert(one(None), how="literal")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="no conversion to 'onednn-v2'"):
        convert(one(None), "onednn-v2")
    with pytest.raises(InvalidInput, match="only plans for onednn-v2 or onednn-v3"):
        convert(convert(one(None), "unified"), "unified")
    with pytest.raises(InvalidInput, match="a str is no plan"):
        convert("plan.onnx")  # type: ignore[arg-type]
    broken = one(None)
    with pytest.raises(PlanError, match="the plan is not sound"):
        convert(replace(broken, outputs=("gone",)))


TOO_MANY = (Eltwise("abs", 0.0, 0.0, 2.0), *[Eltwise("square", 0.0, 0.0, 2.0)] * 20)
NOT_IN_V3 = {
    "too many post-ops": (TOO_MANY, "post-ops, and onednn-v3 takes 32"),
    "an infinite factor": (
        (Eltwise("clip", 0.0, 6.0, math.inf),),
        "a post-op eltwise with a parameter that is not finite in f32",
    ),
}


@pytest.mark.parametrize("how", ["mechanical", "semantic"])
@pytest.mark.parametrize("case", NOT_IN_V3)
def test_what_v3_cannot_say_is_told_with_the_step(case: str, how: Conversion) -> None:
    post_ops, word = NOT_IN_V3[case]
    plan = one(*post_ops)
    assert verify_plan(plan) == []
    with pytest.raises(PlanError) as caught:
        convert(plan, how=how)
    assert caught.value.what.startswith("convolution c cannot be converted: for onednn-v3 it has ")
    assert word in caught.value.what
    assert (caught.value.where, caught.value.hint) == ("conv", "compile the model for onednn-v3")


def test_step_by_step_such_a_step_stays_as_it_is() -> None:
    converted, kept = convert_steps(one(*TOO_MANY))
    assert list(kept) == [0]
    assert converted.steps == one(*TOO_MANY).steps
    assert converted.decision_records == ()


# -- what only plans written by hand hold ----------------------------------------------------------


def by_both(plan: Plan) -> tuple[Plan, Plan]:
    """Both conversions of a plan with exact factors; each gives the same numbers."""
    assert verify_plan(plan) == []
    rng = np.random.default_rng(4)
    feeds = {
        name: rng.integers(0, 200, plan.type(name).static_shape).astype(plan.type(name).dtype.numpy)
        for name in plan.inputs
    }
    found = convert(plan), convert(plan, how="semantic")
    for converted in found:
        for step, old, new in pairs(plan, converted, feeds):
            np.testing.assert_array_equal(
                old, new, err_msg=f"{converted.options['converted']} {step.name}"
            )
    return found


@pytest.mark.parametrize("bias", ["db", ""])
@pytest.mark.parametrize("dst", [U8, F32])
def test_a_depthwise_post_op_multiplies_its_bias_too(dst: DType, bias: str) -> None:
    """Its accumulator gets the bias before the scale in v2, and behind it in v3; what is between
    are codes without a type.
    """
    op = DepthwiseConv("dw", bias, 3, 1, 1, DType.S8, dst, Scale((0.25, 0.5), 3), Scale((0.5,)))
    mechanical, semantic = by_both(one(op, dst=dst))
    unscaled = replace(op, weights_scale=Scale((1.0,))), Binary("mul", "c/output_scale")
    assert mechanical.steps[0].attr.post_ops[1:] == (unscaled if bias else (op,))
    assert semantic.decision_records[0].reason == (
        "convolution c is converted mechanically: its depthwise post-op decodes codes that no type describes"
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("axis", [0, 2, 3])
def test_an_output_scale_along_another_dimension_is_no_scale_of_weights(
    axis: int, bias: bool
) -> None:
    size = (1, 2, 5, 5)[axis]
    scale = Scale(tuple(2.0**-index for index in range(5, 5 + size)), 1 << axis)
    plan = one(None, bias=bias)
    plan = replace(
        plan, steps=(replace(plan.steps[0], attr=replace(plan.steps[0].attr, output_scales=scale)),)
    )
    mechanical, semantic = by_both(plan)
    assert mechanical.steps[0].attr.scales == (
        {} if bias or size > 1 else {"weights": Scale(scale.values)}
    )
    assert ("does not run along the output channels" in semantic.decision_records[0].reason) == (
        size > 1
    )


def test_a_negative_scale_of_codes_has_no_quanta() -> None:
    plan = one(Eltwise("relu"))
    _, semantic = by_both(
        replace(
            plan, values={**plan.values, "y": TensorType(U8, (1, 2, 5, 5), Quantization.of(-0.5))}
        )
    )
    assert "a type does not say by which one scale" in semantic.decision_records[0].reason
    assert semantic.decision_records[0].expected == "a scale per tensor, above 0"


@pytest.mark.parametrize(
    ("op", "quantum"),
    [
        (Sum("old", 1e30), 1e30),
        (Eltwise("linear", 1.0, 1e30), 1e30),
        (Eltwise("tanh", scale=1e-20), 1e-20),
        (Eltwise("linear", 1.0, 1e-20), 1e-20),
    ],
)
def test_a_number_of_the_real_domain_that_f32_does_not_hold(op: PostOp, quantum: float) -> None:
    """Infinite, or below the normal numbers: as 0 it would be gone."""
    plan = one(op)
    _, semantic = by_both(
        replace(
            plan,
            values={**plan.values, "y": TensorType(U8, (1, 2, 5, 5), Quantization.of(quantum))},
        )
    )
    assert "leaves f32's range" in semantic.decision_records[0].reason
    assert semantic.decision_records[0].found


def test_a_post_op_that_a_fate_speaks_of_stays() -> None:
    quantizers = {"q": Quantizer("q", "FakeQuantize", "x")}
    fates = (
        Fate("q", Half.QUANTIZE, QuantizeFate.POST_OP, "", step=0),
        Fate("q", Half.DEQUANTIZE, DequantizeFate.REDUNDANT, "", "c"),
    )
    told = replace(one(Eltwise("linear", 2.0)), quantizers=quantizers, fate_records=fates)
    _, semantic = by_both(told)
    assert semantic.steps[0].attr.post_ops
    assert by_both(one(Eltwise("linear", 2.0)))[1].steps[0].attr.post_ops == ()
