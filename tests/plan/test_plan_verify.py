"""The plan verifier: for each row a plan that breaks it, and the diagnostic that a person sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from support.plan_strategies import full_plan, plans
from support.plan_text import parse_plan
from support.runtime_plans import one_step

from fqfuse.errors import InternalError, PlanError
from fqfuse.ir import diagnostic
from fqfuse.ir.decision import DequantizeFate, Fate, Half, QuantizeFate, Quantizer
from fqfuse.ir.types import DType, Quantization, TensorType
from fqfuse.plan.attributes import (
    Binary,
    DepthwiseConv,
    Eltwise,
    Prelu,
    PrimitiveAttr,
    Scale,
    Sum,
    ZeroPoint,
)
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan
from fqfuse.plan.verify import PLAN, check_plan, verify_plan

CASES = Path(__file__).parents[1] / "golden" / "verify_plan"

NET = """
plan net target=onednn-v3
  in %x : f32[N,4,6,6]
  const @w : s8[4,4,3,3] = fill(1)
  const @slope : f32[1,4,1,1] = fill(0.25)
  const @dw : s8[4,1,3,3] = fill(1)
  const @fc : s8[6,5] = fill(1)
  #0 %q : u8[N,4,6,6]{s=0.5,z=3} = reorder<Identity>(src=%x) scales(dst=0.5) zero_points(dst=3) ; quantize
  #1 %c : u8[N,4,6,6]{s=0.25,z=0} = convolution<Conv>(src=%q, weights=@w){pads=[1,1,1,1]} scales(src=0.5, weights=1) | eltwise(relu) ; conv
  #2 %d : u8[N,4,6,6] = convolution<Conv>(src=%q, weights=@w){pads=[1,1,1,1]} scales(src=0.5, weights=1) | sum(%c,scale=0.25) ; last
  #3 %e : f32[N,4,6,6] = binary<Add>(src_0=%d, src_1=%d){algorithm="add"} ; twice
  #4 %t : f32[N,4,6,6] = onnx.Transpose(x=%e){perm=[0,1,3,2]} ; turn
  #5 %y : f32[N,4,6,5] = matmul<MatMul>(src=%d, weights=@fc) scales(src=0.5) ; fc
  #6 %p : u8[N,4,5,5] = pooling<MaxPool>(src=%d){kernel_shape=[2,2]} ; pool
  #7 %s : f32[N,4,6,6] = eltwise<Relu>(src=%e){algorithm="relu"} ; act
  out %y, %t, %s, %p
  quantizer fq : FakeQuantize of x
  fate fq quantize -> standalone at #0 : "of an input"
  fate fq dequantize of conv -> source_scale at #1 : "scale of the source"
"""


LAYER = """
plan layer target=onednn-v3
  in %x : f32[5,2,3]
  const @w : f32[1,8,3] = fill(0.5)
  const @r : f32[1,8,2] = fill(1)
  const @n : s32[2] = fill(4)
  #0 %y : f32[5,1,2,2], %h : f32[1,2,2] = rnn<LSTM>(src=%x, w=@w, r=@r, sequence_lens=@n) ; layer
  out %y, %h
"""


LOOP = """
plan loop target=onednn-v3
  in %x : f32[2]
  in %n : s64[]
  #0 %y : f32[2], %rows : f32["?",2] = onnx.Loop<Onnx>(x_0=%n, x_2=%x){op_type="Loop",opset=21,proto=b""} ; loop
  out %y, %rows
  body #0 1 0
  plan loop.body target=onednn-v3
    in %trip : s64[]
    in %going : bool[]
    in %state : f32[2]
    #0 %next : f32[2] = eltwise<Relu>(src=%state){algorithm="relu"} ; act
    out %going, %next, %state
  end
"""


def base() -> Plan:
    """The sound plan that every case breaks in one way."""
    return parse_plan(NET)


def changed(plan: Plan, **fields: Any) -> Plan:
    """The plan with other fields."""
    return Plan(**{**vars(plan), **fields})


def step(name: str, /, **fields: Any) -> Callable[[Plan], Plan]:
    """Changes fields of a step."""

    def change(plan: Plan) -> Plan:
        return changed(
            plan, steps=tuple(replace(s, **fields) if s.name == name else s for s in plan.steps)
        )

    return change


def attr(name: str, /, **fields: Any) -> Callable[[Plan], Plan]:
    """Changes attributes of a step."""

    def change(plan: Plan) -> Plan:
        return changed(
            plan,
            steps=tuple(
                replace(s, attr=replace(s.attr, **fields)) if s.name == name else s
                for s in plan.steps
            ),
        )

    return change


def post_op(*ops: Any, of: str = "conv") -> Callable[[Plan], Plan]:
    """Gives a step other post-ops."""
    return attr(of, post_ops=ops)


def values(**types: TensorType) -> Callable[[Plan], Plan]:
    """Gives values other types."""
    return lambda plan: changed(plan, values={**plan.values, **types})


def v2(change: Callable[[Plan], Plan]) -> Callable[[Plan], Plan]:
    """Breaks a plan of the other target: it has none of the scales."""

    def both(plan: Plan) -> Plan:
        steps = tuple(replace(s, attr=replace(s.attr, scales={})) for s in plan.steps)
        return change(changed(plan, target="onednn-v2", steps=steps))

    return both


def fate(
    half: Half,
    kind: QuantizeFate | DequantizeFate,
    where: int | None,
    *,
    quantizer: str = "fq",
    consumer: str = "conv",
) -> Callable[[Plan], Plan]:
    """Adds a fate."""
    told = Fate(quantizer, half, kind, "because", consumer, where)
    return lambda plan: changed(plan, fate_records=(*plan.fate_records, told))


IMAGE = ("N", 4, 6, 6)
Q, D = Half.QUANTIZE, Half.DEQUANTIZE
SABOTAGE: dict[str, Callable[[Plan], Plan]] = {
    "target": lambda plan: changed(plan, target="gpu"),
    "step-names": step("turn", name="conv"),
    "defined": values(stray=TensorType(DType.F32, ())),
    "defined.input": lambda plan: changed(plan, inputs=("x", "x")),
    "defined.constant": values(w=TensorType(DType.S8, (4, 4, 3, 3))),
    "bound-before-use": step("conv", args=(("src", "d"), ("weights", "w"))),
    "bound-before-use.twice": step("act", outputs=("y",)),
    "bound-before-use.nothing": step("act", outputs=("",)),
    "bound-before-use.no-type": lambda plan: changed(
        plan, values={k: v for k, v in plan.values.items() if k != "s"}
    ),
    "outputs-exist": lambda plan: changed(plan, outputs=("gone",)),
    "outputs-exist.none": lambda plan: changed(plan, outputs=()),
    "stated-shapes": lambda plan: changed(plan, options={"shapes": "N"}),
    "stated-shapes.row": lambda plan: changed(plan, options={"shapes": (("x", "N"),)}),
    "stated-shapes.size": lambda plan: changed(plan, options={"shapes": (("x", (1.5,)),)}),
    "stated-shapes.usual": lambda plan: changed(plan, options={"usual_sizes": (("N", -1),)}),
    "quantization": values(q=TensorType(DType.U8, IMAGE, Quantization((0.0,), (3.0,)))),
    "roles": step("conv", args=(("src", "q"),)),
    "roles.primitive": step("conv", primitive="convolve"),
    "roles.twice": step("twice", args=(("src_0", "d"), ("src_1", "d"), ("src_1", "d"))),
    "roles.onnx": step("turn", args=(("data", "e"),)),
    "roles.onnx-missing": step("turn", args=()),
    "roles.op": step("turn", primitive="onnx.Turn", op="Turn"),
    "params": step("twice", params={"algorithm": "plus"}),
    "params.number": step("act", params={"algorithm": "relu", "alpha": "0.1"}),
    "params.kind": step("pool", params={"kernel_shape": (2, 2), "ceil_mode": "yes"}),
    "shapes": values(y=TensorType(DType.F32, ("N", 4, 6, 7))),
    "shapes.misfit": step("fc", args=(("src", "d"), ("weights", "w"))),
    "shapes.type": values(t=TensorType(DType.S32, IMAGE)),
    "roles.identity": step("turn", primitive="onnx.Lookup"),
    "roles.algorithm": step("act", params={"algorithm": "tanh"}),
    "roles.computes": step("pool", op="Softmax"),
    "roles.strange": step("conv", args=(("src", "q"), ("weights", "w"), ("src_1", "q"))),
    "roles.run-time": step("conv", args=(("src", "q"), ("weights", "w"), ("bias", "x"))),
    "roles.outputs": step("conv", outputs=("c", "c2")),
    "params.strange": step("pool", params={"kernel_shape": (2, 2), "algorithm": "max"}),
    "params.required": step("turn", primitive="onnx.Cast", op="Cast", params={}),
    "params.nan": step("act", params={"algorithm": "relu", "alpha": float("nan")}),
    "types": values(q=TensorType(DType.S32, IMAGE)),
    "types.dst": values(p=TensorType(DType.S8, ("N", 4, 5, 5))),
    "types.weights": lambda plan: changed(
        plan, constants={**plan.constants, "w": np.zeros((4, 4, 3, 3), np.uint8)}
    ),
    "types.bias": step("fc", args=(("src", "d"), ("weights", "fc"), ("bias", "fc"))),
    "bodies": lambda _: parse_plan(LOOP.replace("body #0 1 0", "body #0 2 0")),
    "bodies.within": lambda _: parse_plan(
        LOOP.replace("{algorithm=", "{alpha=0,algorithm=").replace('"relu"', '"none"')
    ),
    "recurrent": lambda _: parse_plan(LAYER.replace("@r : f32", "@r : s8")),
    "recurrent.lengths": lambda _: parse_plan(LAYER.replace("@n : s32", "@n : f32")),
    "recurrent.output": lambda _: parse_plan(LAYER.replace("%h : f32", "%h : s8")),
    "scales": attr("pool", scales={"src": Scale((0.5,))}),
    "scales.absent-role": attr("conv", scales={"bias": Scale((0.5,))}),
    "scales.weights-mask": attr("conv", scales={"weights": Scale((0.5,) * 4, 2)}),
    "scales.weights-count": attr("conv", scales={"weights": Scale((0.5,) * 3, 1)}),
    "scales.matmul-mask": attr("fc", scales={"weights": Scale((0.5,) * 5, 1)}),
    "scales.src-mask": attr("conv", scales={"src": Scale((0.5,) * 4, 2)}),
    "scales.unknown-size": attr("quantize", scales={"dst": Scale((0.5,) * 4, 1)}),
    "scales.reorder-mask": attr("quantize", scales={"dst": Scale((0.5,) * 23, 6)}),
    "scales.count": attr("conv", scales={"src": Scale((0.5, 0.5))}),
    "scales.zero": attr("conv", scales={"dst": Scale((0.0,))}),
    "scales.infinite": attr("conv", scales={"src": Scale((float("inf"),))}),
    "scales.output": attr("conv", output_scales=Scale((0.5,))),
    "scales.v2": v2(attr("conv", scales={"weights": Scale((0.5,))})),
    "scales.v2-count": v2(attr("conv", output_scales=Scale((0.5,) * 3, 2))),
    "scales.v2-mask": v2(attr("conv", output_scales=Scale((0.5,) * 24, 6))),
    "scales.v2-beyond": v2(attr("conv", output_scales=Scale((0.5,), 16))),
    "zero-points": attr("twice", zero_points={"src_0": ZeroPoint((3,))}),
    "zero-points.float": attr("fc", zero_points={"dst": ZeroPoint((3,))}),
    "zero-points.s32": attr("conv", zero_points={"src": ZeroPoint((1 << 31,))}),
    "zero-points.long": attr("conv", zero_points={"src": ZeroPoint((10**25,))}),
    "zero-points.fraction": attr("twice", zero_points={"src": ZeroPoint((0.5,))}),
    "zero-points.fraction-of-dst": attr("conv", zero_points={"dst": ZeroPoint((0.5,))}),
    "zero-points.fraction-of-several": attr("conv", zero_points={"src": ZeroPoint((0.5,) * 4, 2)}),
    "zero-points.infinite": attr("conv", zero_points={"src": ZeroPoint((float("inf"),))}),
    "zero-points.nan": attr("conv", zero_points={"src": ZeroPoint((float("nan"),))}),
    "zero-points.mask": attr("conv", zero_points={"src": ZeroPoint((3,) * 4, 2)}),
    "post-ops": post_op(Sum("c"), of="pool"),
    "post-ops.too-many": post_op(*[Eltwise("relu")] * 33),
    "post-ops.eltwise": post_op(Eltwise("reluu")),
    "post-ops.eltwise-scale": post_op(Eltwise("relu", scale=2.0)),
    "post-ops.nan": post_op(Eltwise("linear", float("nan"))),
    "post-ops.clip": post_op(Eltwise("clip", 6.0, 0.0)),
    "post-ops.binary": post_op(Binary("plus", "slope")),
    "post-ops.binary-scale": post_op(Binary("add", "slope", Scale((0.5,)))),
    "post-ops.binary-zero-point": post_op(Binary("add", "dw", None, ZeroPoint((3,)))),
    "post-ops.operand": post_op(Binary("add", "dw")),
    "post-ops.operand-rank": post_op(Binary("add", "fc")),
    "post-ops.prelu-type": post_op(Prelu("dw")),
    "post-ops.prelu-mask": post_op(Prelu("slope", 1)),
    "post-ops.prelu-beyond": post_op(Prelu("slope", 16)),
    "post-ops.sum-scale": post_op(Sum("c", float("inf")), of="last"),
    "post-ops.depthwise_conv": post_op(DepthwiseConv("dw", "", 0, 1, 1)),
    "post-ops.depthwise_conv-type": post_op(DepthwiseConv("slope", "", 3, 1, 1)),
    "constants": post_op(Prelu("x")),
    "sum": lambda plan: changed(plan, outputs=(*plan.outputs, "c")),
    "sum.read-later": step("act", args=(("src", "c"),)),
    "sum.constant": post_op(Sum("slope"), of="last"),
    "sum.argument": post_op(Sum("q"), of="last"),
    "sum.shape": values(c=TensorType(DType.U8, ("N", 4, 6, 5))),
    "sum.type": post_op(Sum("c", dtype=DType.S8), of="last"),
    "sum.zero-point": lambda plan: values(
        c=TensorType(DType.F32, IMAGE), d=TensorType(DType.F32, IMAGE)
    )(post_op(Sum("c", 1.0, 3), of="last")(plan)),
    "sum.two": post_op(Sum("c"), Sum("x"), of="last"),
    "fates": fate(Q, QuantizeFate.REDUNDANT, 99),
    "fates.quantizer": fate(Q, QuantizeFate.REDUNDANT, None, quantizer="nobody"),
    "fates.half": fate(Q, DequantizeFate.BIAS, None),
    "fates.consumer": fate(D, DequantizeFate.BIAS, None, consumer=""),
    "fates.no-step": fate(D, DequantizeFate.SUM, None),
    "fates-add-up": lambda plan: changed(plan, fate_records=plan.fate_records[:1]),
    "fates-add-up.name": lambda plan: changed(
        plan, quantizers={"fq": Quantizer("other", "FakeQuantize", "x")}
    ),
    "fates-true": fate(D, DequantizeFate.SUM, 1),
    "fates-true.dst-scale": fate(Q, QuantizeFate.DST_SCALE, 5),
    "fates-true.post-op": fate(Q, QuantizeFate.POST_OP, 5),
    "fates-true.weights": fate(D, DequantizeFate.WEIGHTS_SCALE, 6),
}


def test_the_plan_is_sound_before_it_is_broken():
    assert verify_plan(base()) == []
    check_plan(base(), blame="the composer")


@pytest.mark.golden("verify_plan")
def test_the_diagnostic_of_a_broken_plan(golden):
    found = verify_plan(SABOTAGE[golden.name](base()))
    # What breaks one rule often breaks another one, too: the file holds what this row says.
    own = [
        diagnostic for diagnostic in found if diagnostic.rule == f"plan/{golden.name.split('.')[0]}"
    ]
    assert own
    golden.check("\n\n".join(map(str, own)))


def test_every_row_has_a_case_and_every_case_a_file():
    assert {case.split(".")[0] for case in SABOTAGE} == set(PLAN)
    assert {path.stem for path in CASES.glob("*.txt")} == set(SABOTAGE)


@given(plans())
def test_generated_sound_plans_are_sound(plan):
    assert "\n".join(map(str, verify_plan(plan))) == ""


def test_a_grouped_convolution_and_a_deconvolution_have_scales_for_their_output_channels():
    text = """
    plan net target=onednn-v3
      in %x : u8[1,4,6,6]
      const @w : s8[8,2,1,1] = fill(1)
      const @v : s8[8,3,1,1] = fill(1)
      #0 %y : s8[1,8,6,6] = convolution<Conv>(src=%x, weights=@w){group=2} scales(weights=[1,2,3,4,5,6,7,8]:3) ; conv
      #1 %z : s8[1,6,6,6] = deconvolution<ConvTranspose>(src=%y, weights=@v){group=2} scales(weights=[1,2,3,4,5,6]:3) ; deconv
      out %z
    """
    assert "\n".join(map(str, verify_plan(parse_plan(text)))) == ""
    (found,) = verify_plan(parse_plan(text.replace("[1,2,3,4,5,6]:3", "[1,2,3]:3")))
    assert (
        found.message
        == "deconvolution deconv has a scale of weights with 3 values for 6 output channels"
    )


def test_a_plan_from_outside_is_a_plan_error_with_its_file():
    with pytest.raises(PlanError) as caught:
        check_plan(SABOTAGE["outputs-exist"](base()), source="net.plan.onnx")
    what = "the plan is not sound: the plan returns %gone, which nothing writes"
    assert (
        str(caught.value)
        == f"{what}\n  where: net.plan.onnx: gone\n  fix:   compile the model again"
    )


def test_a_plan_of_the_compiler_is_a_bug_and_is_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(diagnostic.tempfile, "tempdir", str(tmp_path))
    plan = SABOTAGE["sum"](base())
    with pytest.raises(InternalError) as caught:
        check_plan(plan, blame="the composer")
    assert "the composer made a plan that is not sound" in str(caught.value)
    assert parse_plan(Path(caught.value.saved).read_text(encoding="utf-8")) == plan


def test_a_report_names_large_data_by_digest(tmp_path, monkeypatch):
    monkeypatch.setattr(diagnostic.tempfile, "tempdir", str(tmp_path))
    plan = base()
    noise = np.random.default_rng(0).integers(0, 255, 65 << 20, np.uint8)
    with pytest.raises(InternalError) as caught:
        check_plan(
            changed(plan, constants={**plan.constants, "noise": noise}, outputs=()),
            blame="the composer",
        )
    assert Path(caught.value.saved).stat().st_size < 10_000


def test_the_full_plan_is_sound():
    assert verify_plan(full_plan()) == []


def test_softmax_of_onednn_2_has_one_output_scale():
    data = [("src", np.zeros((2, 4), np.float32))]
    for values, mask, told in (((0.5,), 0, ""), ((0.5,) * 4, 2, "it takes one")):
        attr = PrimitiveAttr({}, {}, (), Scale(values, mask))
        plan, *_ = one_step("softmax", "Softmax", data, DType.F32, attr=attr, target="onednn-v2")
        found = [str(d) for d in verify_plan(plan) if d.rule == "plan/scales"]
        assert len(found) == bool(told)
        assert all(told in text for text in found)


COMPUTED = """
plan net target=onednn-v3
  in %q : u8[N,6]
  in %s : f32[]
  in %z : u8[1]
  in %v : f32[4]
  in %b : s8[]
  in %one : u8[N,2,5,5]
  const @w : s8[6,4] = fill(1)
  const @k : s8[4,2,3,3] = fill(1)
  #0 %y : f32[N,4] = matmul<MatMul>(src=%q, weights=@w, scales_src=%s, zero_points_src=%z, scales_weights=%v, zero_points_weights=%b) ; fc
  #1 %c : f32[N,4,3,3] = convolution<Conv>(src=%one, weights=@k, zero_points_src=%z, scales_weights=%v) scales(src=0.5) ; conv
  #2 %i : s32[N,4] = matmul<MatMul>(src=%q, weights=@w, zero_points_src=%z) zero_points(weights=3) ; sums
  out %y, %c, %i
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("in %s : f32[]", "in %s : f32[4]", "has scales_src of f32[4], and it is one f32"),
        ("in %z : u8[1]", "in %z : s8[1]", "has zero_points_src of s8[1], and it is one u8"),
        ("in %v : f32[4]", "in %v : f32[3]", "has scales_weights of f32[3], and it is one f32"),
        ("in %v : f32[4]", 'in %v : f32["?"]', 'has scales_weights of f32["?"], and it is one f32'),
        ("scales_src=%s,", "scales_src=@w,", "has scales_src of s8[6,4], and it is one f32"),
        ("zero_points_weights=%b)", "zero_points_weights=%z)", "of u8[1], and it is one s8"),
        ("=%b) ; fc", "=%b) scales(src=0.5) ; fc", "constant and computed scales of src"),
        (
            "zero_points(weights=3)",
            "scales(src=0.5)",
            "sums in s32, and has scales, a bias or post",
        ),
        (
            "zero_points(weights=3)",
            "| eltwise(relu)",
            "sums in s32, and has scales, a bias or post",
        ),
        (
            "zero_points(weights=3)",
            "zero_points(dst=3)",
            "sums in s32, and has a zero point of dst",
        ),
        ("in %q : u8[N,6]", "in %q : f32[N,6]", "its src is f32 and no code"),
        ("target=onednn-v3", "target=onednn-v2", "scales_src, which matmul of onednn-v2 does not"),
        ("in %q : u8[N,6]", "in %q : f32[N,6]", "turns f32 into s32"),
        ("scales_weights=%v) scales", "zero_points_weights=%b) scales", "has the role"),
    ],
)
def test_parameters_that_are_computed_and_sums(old: str, new: str, message: str) -> None:
    assert "\n".join(map(str, verify_plan(parse_plan(COMPUTED)))) == ""
    assert COMPUTED.count(old) >= 1
    found = verify_plan(parse_plan(COMPUTED.replace(old, new, 1)))
    assert any(message in diagnostic.message for diagnostic in found), found


@pytest.mark.parametrize("own", [True, False])
def test_the_own_source_of_a_step_fits_whatever_its_sizes_are(own: bool) -> None:
    """A PRelu of codes as a maximum has its source as an operand, whose `?` is that of the result."""
    operand = "x" if own else "other"
    plan = parse_plan(
        f"""plan own target=onednn-v3
  in %x : u8[1,4,"?",1]
  in %other : u8[1,4,"?",1]
  const @one : f32[1,1,1,1] = [1]
  #0 %y : f32[1,4,"?",1] = binary<PRelu>(src_0=%x, src_1=@one){{algorithm="mul"}} | binary(max,%{operand}) ; y
  out %y
"""
    )
    problems = [str(problem) for problem in verify_plan(plan)]
    assert any("does not fit" in problem for problem in problems) is not own, problems


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("binary(add,%o,scale=0.5,zero_point=3)", None),
        ("binary(add,%o,zero_point=[3,4]:per_dim_1)", None),
        ("binary(add,%o,zero_point=[3,4,5]:per_dim_1)", "with 3 values for 2 indices"),
        ("binary(add,%o,zero_point=2.5)", "that is no s32"),
        ("binary(add,%o,zero_point=3000000000)", "that is no s32"),
        ("binary(add,%f,zero_point=3)", "which is f32 and no integer"),
    ],
)
def test_operands_of_unified_have_zero_points(words: str, problem: str | None) -> None:
    text = f"""plan own target=unified
  in %x : f32[1,2]
  in %o : u8[1,2]
  in %f : f32[1,2]
  #0 %y : f32[1,2] = eltwise<Relu>(src=%x){{algorithm="relu"}} | {words} ; y
  out %y
"""
    plan = parse_plan(text)
    found = " ".join(str(each) for each in verify_plan(plan) if "post-op" in str(each))
    assert problem in found if problem else not found, found
    assert parse_plan(print_plan(plan)) == plan
    op = plan.steps[0].attr.post_ops[0]
    assert isinstance(op, Binary)
    assert op.zero_point is not None
