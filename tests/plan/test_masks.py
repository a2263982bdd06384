"""Masks by name: given and printed in Python, in text, in JSON and to the library; refused in its word."""

from __future__ import annotations

import pytest
from support.plan_text import parse_plan

from fqfuse.errors import InvalidInput, PlanError
from fqfuse.masks import mask_of, mask_text
from fqfuse.onednn.attributes import Attributes, PRelu
from fqfuse.onednn.enums import Arg
from fqfuse.plan.attributes import Prelu, Scale, ZeroPoint
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan
from fqfuse.plan.verify import check_plan, verify_plan
from fqfuse.report.json import plan_json

NAMES = {
    "common": 0,
    "per_dim_0": 1,
    "per_dim_1": 2,
    "per_dim_2": 4,
    "per_dim_0+per_dim_1": 3,
    "per_dim_3+per_dim_4": 24,
    "per_channel_nchw": 2,
    "per_channel_tnc": 4,
    "per_channel_oihw": 1,
    "per_channel_goihw": 3,
}

# primitive, weights, their scales, further attributes, destination
STEP = """plan masks  target={target} steps=1 int8=1 constants=2
  in %x : u8[1,{inputs},4,4]
  const @f : f32[1,4,1,1] = [0.5,1.0,2.0,3.0]
  const @w : s8[4,2,1,1] = [1,2,3,4,5,6,7,8]
  #0 %y : f32[1,4,4,4] = convolution<Conv>(src=%x, weights=@w){params} {attributes} ; conv
  out %y
"""


def plan_of(weights: str, group: int = 1, attributes: str = "", target: str = "onednn-v3") -> Plan:
    params = "" if group == 1 else f"{{group={group}}}"
    if not attributes:
        attributes = f"scales(weights=[0.5,0.25,2,1]:{weights})"
    text = STEP.format(inputs=2 * group, params=params, attributes=attributes, target=target)
    return parse_plan(text)


@pytest.mark.parametrize(("name", "number"), NAMES.items())
def test_a_name_is_a_number(name: str, number: int) -> None:
    assert mask_of(name) == mask_of(number) == number
    order = name.partition("per_channel_")[2]
    assert mask_text(number, order) == name
    assert Scale((1.0,), name).mask == ZeroPoint((1,), name).mask == number  # type: ignore[arg-type]
    assert Prelu("slopes", name).mask == PRelu(name).mask == number  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["", "per_dim", "per_dim_12", "per_channel_nhwc", "common+per_dim_0", "Common", "2"]
)
def test_there_are_no_others(name: str) -> None:
    with pytest.raises(InvalidInput, match="there is no mask") as error:
        Scale((1.0,), name)  # type: ignore[arg-type]
    assert "per_channel_oihw" in str(error.value.hint)


@pytest.mark.parametrize("mask", [-1, -4, 1 << 12, 1 << 40])
def test_what_no_tensor_has_is_a_number(mask: int) -> None:
    assert mask_text(mask, "nchw") == str(mask)


@pytest.mark.parametrize(
    ("given", "group"),
    [
        ("1", 1),
        ("per_dim_0", 1),
        ("per_channel_oihw", 1),
        ("3", 2),
        ("per_channel_goihw", 2),
        ("per_dim_0+per_dim_1", 2),
        ("per_dim_1+per_dim_0", 2),
    ],
)
def test_text_takes_names_and_numbers_and_prints_the_order(given: str, group: int) -> None:
    plan = plan_of(given, group)
    text = print_plan(plan)
    assert f"weights=[0.5,0.25,2,1]:per_channel_{'oihw' if group == 1 else 'goihw'}" in text
    assert parse_plan(text) == plan
    assert print_plan(parse_plan(text)) == text
    assert verify_plan(plan) == []
    (step,) = plan_json(plan)["steps"]
    assert step["scales"]["weights"] == {
        "values": [0.5, 0.25, 2.0, 1.0],
        "mask": 1 if group == 1 else 3,
        "mask_name": f"per_channel_{'oihw' if group == 1 else 'goihw'}",
    }


def test_output_scales_run_along_the_channels_of_data() -> None:
    plan = plan_of("", attributes="output_scales([0.5,0.25,2,1]:2)", target="onednn-v2")
    assert "output_scales([0.5,0.25,2,1]:per_channel_nchw)" in print_plan(plan)
    assert verify_plan(plan) == []


def test_slopes_and_operands() -> None:
    text = print_plan(plan_of("common", attributes="| prelu(@f,mask=per_dim_0+per_dim_1)"))
    assert "prelu(@f,mask=per_dim_0+per_dim_1)" in text
    assert parse_plan(text).steps[0].attr.post_ops == (Prelu("f", 3),)


def test_text_refuses_other_words() -> None:
    with pytest.raises(Exception, match="there is no mask 'per_channel'"):
        plan_of("per_channel")


@pytest.mark.parametrize("mask", ["per_dim_4", "per_dim_11", "per_dim_0+per_dim_5", "16", "-2"])
@pytest.mark.parametrize(
    ("target", "attributes"),
    [
        ("onednn-v3", "scales(weights=[0.5,0.25,2,1]:{})"),
        ("onednn-v3", "scales(src=[0.5,0.25,2,1]:{})"),
        ("onednn-v3", "zero_points(src=[0,1,2,1]:{})"),
        ("onednn-v2", "output_scales([0.5,0.25,2,1]:{})"),
        ("onednn-v3", "| prelu(@f,mask={})"),
    ],
)
def test_a_dimension_that_is_not_there_is_refused_in_the_librarys_word(
    mask: str, target: str, attributes: str
) -> None:
    plan = plan_of("", attributes=attributes.format(mask), target=target)
    with pytest.raises(PlanError, match="dimensions that are not there \\(invalid_arguments\\)"):
        check_plan(plan)


@pytest.mark.parametrize("order", ["tnc", "nchw", "oihw", "goihw"])
def test_channels_that_a_tensor_has_not(order: str) -> None:
    """tnc is the third dimension, which a matrix has not; of the others it has the bits, and not the order."""
    plan = parse_plan(
        f"""plan matrix  target=onednn-v2 steps=1
  in %x : f32[3,4]
  #0 %y : u8[3,4] = reorder<Identity>(src=%x) output_scales([1,2,3,4]:per_channel_{order}) ; q
  out %y
"""
    )
    (found,) = verify_plan(plan)
    assert "which selects dimensions that are not there in the order of its name (inv" in str(found)


def test_the_binding_takes_names_and_shows_them() -> None:
    found = Attributes({Arg.SRC: "common", Arg.WEIGHTS: "per_channel_goihw"}, {Arg.SRC: "common"})  # type: ignore[dict-item]
    assert found == Attributes({Arg.SRC: 0, Arg.WEIGHTS: 3}, {Arg.SRC: 0})
    assert "weights: per_dim_0+per_dim_1" in str(found)
