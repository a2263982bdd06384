"""The report for programs: fixed keys, whole content, plain JSON, and what docs/contributing/json-schema.md says
about it.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.finding_cases import CASES
from support.json_documents import problems
from support.plan_corpus import every_plan
from support.plan_text import parse_plan

import fqfuse
from fqfuse.ir.decision import DequantizeFate, QuantizeFate
from fqfuse.models.digits import digits_model_path
from fqfuse.plan.attributes import OPERANDS, Eltwise, PrimitiveAttr
from fqfuse.report.json import plan_json
from fqfuse.report.schema import json_schema
from fqfuse.report.verdict.machine import machine_from

PLANS = Path(__file__).parents[1] / "golden" / "report"
MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=4, clock=3.0)


@pytest.mark.golden("report_json")
def test_document(golden) -> None:
    golden.check(
        json.dumps(
            plan_json(parse_plan(golden.input), MACHINE),
            indent=1,
            ensure_ascii=False,
            allow_nan=False,
        )
    )


@pytest.fixture(params=sorted(PLANS.glob("*.txt")), ids=lambda path: path.stem)
def document(request):
    """The document of each golden plan, as a reader gets it."""
    plan = parse_plan(request.param.read_text(encoding="utf-8").split("\n# -----")[0])
    return json.loads(json.dumps(plan_json(plan), allow_nan=False))


def test_it_is_what_the_schema_says(document) -> None:
    assert problems(document) == []
    assert list(document) == list(json_schema("inspect")["properties"])


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
def test_every_kind_of_plan_is_what_the_schema_says(target: str) -> None:
    models = [make(False) for make in CASES.values()]
    models += [digits_model_path(form) for form in ("f32", "fakequantize", "qdq")]
    for model in models:
        document = plan_json(fqfuse.compile(model, target=target), MACHINE)
        assert problems(json.loads(json.dumps(document, allow_nan=False))) == []


@pytest.mark.slow
def test_plans_of_every_primitive_are_what_the_schema_says() -> None:
    for name, plan in every_plan():
        document = json.loads(json.dumps(plan_json(plan, MACHINE), allow_nan=False))
        assert problems(document) == [], name


def test_costs_of_steps_add_up_to_the_verdict(document) -> None:
    for key in ("macs", "bytes", "ms"):
        assert sum(step[key] for step in document["steps"]) == pytest.approx(
            document["verdict"][key], rel=1e-3
        )


def test_a_plan_for_onednn_2_shows_its_scales_and_masks() -> None:
    plan = fqfuse.compile(digits_model_path("qdq"), target="onednn-v2")
    steps = plan_json(plan, MACHINE)["steps"]
    for told, step in zip(steps, plan.steps, strict=True):
        held = step.attr.output_scales
        if held is None:
            assert told["output_scales"] is None
            continue
        assert told["output_scales"]["mask"] == held.mask
        np.testing.assert_array_equal(
            np.float32(told["output_scales"]["values"]), np.float32(held.values)
        )
    assert sum(step["output_scales"] is not None for step in steps) > 5


def test_types_belong_to_the_values_and_read_back(document) -> None:
    for step in document["steps"]:
        assert len(step["types"]["inputs"]) == len(step["inputs"])
        assert len(step["types"]["outputs"]) == len(step["outputs"])
        for text in filter(None, step["types"]["inputs"] + step["types"]["outputs"]):
            plan = parse_plan(f"plan p target=t\n  in %x : {text}\n  out %x\n")
            assert plan.type("x").dtype.value == text.split("[")[0]


def test_the_schema_has_every_fate_and_post_op() -> None:
    held = json_schema("inspect")["$defs"]
    for half, fates in (("quantize", QuantizeFate), ("dequantize", DequantizeFate)):
        assert held[half]["properties"]["fate"]["enum"] == [fate.value for fate in fates]
    kinds = {
        kind["properties"]["kind"]["const"]: kind["properties"] for kind in held["post_op"]["oneOf"]
    }
    names = {op: {field.name for field in fields(op)} for op in OPERANDS}
    named = {op: {"mask_name"} if "mask" in names[op] else set() for op in OPERANDS}
    assert {op.kind: {"kind", *names[op], *named[op]} for op in OPERANDS} == {
        kind: set(properties) for kind, properties in kinds.items()
    }


def test_a_quantize_half_in_several_branches_tells_the_costliest() -> None:
    text = """plan p target=onednn-v3
  in %x : f32[1]
  out %x
  quantizer q : FakeQuantize of x
  fate q quantize -> dst_scale at #3 : "good"
  fate q quantize -> standalone at #4 : "bad"
  fate q quantize -> constant : "best"
"""
    (fate,) = plan_json(parse_plan(text))["fates"]
    assert fate["quantize"] == {
        "fate": "standalone",
        "step": 4,
        "reason": "bad; also dst_scale at step 3: good; also constant: best",
    }
    assert fate["dequantize"] == []


@given(st.floats(width=32) | st.floats())
def test_numbers_read_back(value: float) -> None:
    text = """plan p target=onednn-v3
  in %x : f32[1]
  #0 %y : f32[1] = convolution<Conv>(src=%x) ; s
  out %y
"""
    plan = parse_plan(text)
    plan = replace(
        plan,
        steps=(replace(plan.steps[0], attr=PrimitiveAttr(post_ops=(Eltwise("linear", value),))),),
    )
    found = json.loads(json.dumps(plan_json(plan), allow_nan=False))["steps"][0]["post_ops"][0][
        "alpha"
    ]
    with np.errstate(over="ignore"):
        is_single = float(np.float32(value)) == value
        # A value of f32 is written with as few digits as name it among the f32 values; any other in
        # full.
        assert (np.float32(found) == value if is_single else float(found) == value) or (
            math.isnan(value) and found == "nan"
        )
