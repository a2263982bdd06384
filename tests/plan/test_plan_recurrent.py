"""Layers in int8 in plans: text, file, both senses of their parameters, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.plan_text import parse_plan
from support.qparams import with_qparams

import fqfuse
from fqfuse.plan.attributes import PrimitiveAttr, Scale
from fqfuse.plan.conversion.convert import convert
from fqfuse.plan.recurrent_parameters import qparams_of, with_scales
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan
from fqfuse.plan.verify import verify_plan

LAYER = """
plan layer target=onednn-v2
  in %x : u8[5,2,3]
  const @w : s8[2,6,3] = fill(5)
  const @r : s8[2,6,2] = fill(1)
  #0 %y : u8[5,2,2,2], %h : f32[2,2,2] = rnn<GRU>(src=%x, w=@w, r=@r){direction="bidirectional"} rnn_data_qparams([127,128]:0)
    rnn_weights_qparams([64,32,16,8,4,2]:24) ; layer
  out %y, %h
""".replace("\n    rnn", " rnn")

UNIFIED = LAYER.replace("onednn-v2", "unified").replace(
    "rnn_data_qparams([127,128]:0) rnn_weights_qparams([64,32,16,8,4,2]:24)",
    "scales(r=[0.5,1,1,1,1,2]:2, src=0.25, w=[0.5,1,1,1,1,2]:2) zero_points(src=128)",
)


@pytest.mark.parametrize("text", [LAYER, UNIFIED])
def test_text_and_file(text: str, tmp_path: Path) -> None:
    plan = parse_plan(text)
    assert verify_plan(plan) == []
    assert parse_plan(print_plan(plan)) == plan
    fqfuse.save_plan(plan, tmp_path / "layer.onnx")
    assert fqfuse.load_plan(tmp_path / "layer.onnx") == plan


def test_both_senses() -> None:
    attr = parse_plan(LAYER).steps[0].attr
    common = with_scales(attr)
    assert common.scales["w"] == common.scales["r"]
    assert common.scales["w"] == Scale((1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2), 2)
    assert common.zero_points["src"].values == (128,)
    assert qparams_of(common) == qparams_of(attr)
    assert with_qparams(common) == attr
    plain = PrimitiveAttr()
    assert with_scales(plain) == with_qparams(plain) == plain


def test_conversion_keeps_them() -> None:
    plan = parse_plan(LAYER)
    assert convert(plan).steps == plan.steps


def changed(text: str, old: str, new: str) -> Plan:
    assert old in text
    return parse_plan(text.replace(old, new))


@pytest.mark.parametrize(("number", "taken"), [("0.5", True), ("nan", False), ("-inf", False)])
def test_a_bias_is_finite(number: str, taken: bool) -> None:
    text = LAYER.replace("  #0", f"  const @b : f32[2,12] = fill({number})\n  #0")
    problems = verify_plan(changed(text, "r=@r)", "r=@r, b=@b)"))
    assert any("a bias in int8 that is not finite" in str(each) for each in problems) is not taken
    assert taken is (problems == [])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[127,128]:0", "127", "no positive scale and shift"),
        ("[127,128]:0", "[-127,128]:0", "no positive scale and shift"),
        ("[127,128]:0", "[127,128]:1", "no positive scale and shift"),
        ("[127,128]:0", "[127,128.5]:0", "no code of u8"),
        ("[127,128]:0", "[127,300]:0", "no code of u8"),
        (
            "[64,32,16,8,4,2]:24",
            "[64,32]:24",
            "one of mask common or 6 of mask per_dim_3+per_dim_4",
        ),
        (
            "[64,32,16,8,4,2]:24",
            "[64,32,16,8,4,2]:8",
            "one of mask common or 6 of mask per_dim_3+per_dim_4",
        ),
        (
            "[64,32,16,8,4,2]:24",
            "[64,32,16,8,4,0]:24",
            "one of mask common or 6 of mask per_dim_3+per_dim_4",
        ),
        ("[64,32,16,8,4,2]:24", "[64,32,16,8,4,1e-42]:24", "f32 holds no inverse of it"),
        (" rnn_weights_qparams([64,32,16,8,4,2]:24)", "", "lacks the parameters of its codes"),
        ("const @w : s8[2,6,3] = fill(5)", "in %w : s8[2,6,3]", "needs a constant"),
        ("@w : s8", "@w : u8", "has w of u8[2,6,3]"),
        ("%h : f32", "%h : u8", "writes %h of u8[2,2,2]"),
        ('{direction="bidirectional"}', '{direction="bidirectional",clip=1.0}', "do not clip"),
        (
            '{direction="bidirectional"}',
            '{direction="bidirectional",linear_before_reset=1}',
            "the latter with the reset in front",
        ),
    ],
)
def test_what_is_refused(old: str, new: str, says: str) -> None:
    text = LAYER.replace("@w", "%w") if new.startswith("in %w") else LAYER
    plan = changed(text, old.replace("@w", "%w") if text != LAYER else old, new)
    found = " ".join(diagnostic.message for diagnostic in verify_plan(plan))
    assert says in found, found


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("r=[0.5,1,1,1,1,2]:2", "r=[0.5,1,1,1,1,3]:2", "other scales of w than of r"),
        ("r=[0.5,1,1,1,1,2]:2, ", "", "other scales of w than of r"),
        ("src=0.25", "src=0", "scales that are 0"),
        ("src=128", "src=300", "no code of u8"),
        ("src=128", "src=[]:0", "zero points that are not one"),
    ],
)
def test_what_is_refused_in_the_common_sense(old: str, new: str, says: str) -> None:
    found = " ".join(d.message for d in verify_plan(changed(UNIFIED, old, new)))
    assert says in found, found


def test_a_target_takes_one_sense() -> None:
    for text, target in ((LAYER, "unified"), (UNIFIED, "onednn-v3")):
        plan = parse_plan(text)
        other = Plan(**{**vars(plan), "target": target})
        assert any("does not take" in d.message for d in verify_plan(other))


def test_others_have_none() -> None:
    plan = parse_plan(LAYER)
    (step,) = plan.steps
    other = replace(
        step, primitive="eltwise", op="Relu", args=step.args[:1], params={"algorithm": "relu"}
    )
    broken = Plan(**{**vars(plan), "steps": (other,)})
    assert any("parameters of a recurrent layer" in d.message for d in verify_plan(broken))
