"""The report for programs: fixed keys, whole content, plain JSON, and what docs/json-schema.md says
about it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fqfuse.ir.decision import DequantizeFate, QuantizeFate
from fqfuse.plan.attributes import Eltwise, PrimitiveAttr
from fqfuse.plan.text import parse_plan
from fqfuse.report.json import plan_json
from fqfuse.report.verdict.machine import machine_from

CASES = Path(__file__).parents[1] / "golden" / "report"
MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=4, clock=3.0)
SCHEMA = (Path(__file__).parents[2] / "docs" / "json-schema.md").read_text(encoding="utf-8")


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


@pytest.fixture(params=sorted(CASES.glob("*.txt")), ids=lambda path: path.stem)
def document(request):
    """The document of each golden plan, as a reader gets it."""
    plan = parse_plan(request.param.read_text(encoding="utf-8").split("\n# -----")[0])
    return json.loads(json.dumps(plan_json(plan), allow_nan=False))


def documented(heading: str) -> list[str]:
    """The keys in the first table behind a heading or sentence of the schema."""
    table = SCHEMA.split(heading, 1)[1].split("|---|---|\n", 1)[1].split("\n\n", 1)[0]
    return [
        key for line in table.splitlines() for key in re.findall(r"`(\w+)`", line.split("|")[1])
    ]


def test_the_keys_are_the_fixed_and_documented_ones(document) -> None:
    assert (
        list(document)
        == ["schema", "summary", "verdict", "findings", "steps", "fates", "decisions"]
        == documented("## fqfuse.inspect/1")
    )
    assert list(document["summary"]) == documented("`summary`:")
    assert list(document["verdict"]) == documented("`verdict`:")
    for finding in document["findings"]:
        assert list(finding) == documented("An entry of `findings`")
    for step in document["steps"]:
        assert (
            list(step)
            == [
                "index",
                "primitive",
                "inputs",
                "outputs",
                "types",
                "scales",
                "zero_points",
                "output_scales",
                "post_ops",
                "origin",
            ]
            == documented("An entry of `steps`")
        )
        assert list(step["types"]) == ["inputs", "outputs"]
        assert all(
            list(given) == ["values", "mask"]
            for given in (*step["scales"].values(), *step["zero_points"].values())
        )
        for op in step["post_ops"]:
            (line,) = [
                line for line in SCHEMA.splitlines() if line.startswith(f"| `{op['kind']}` |")
            ]
            assert set(op) <= set(re.findall(r"`(\w+)`", line)) | {"kind"}
    for fate in document["fates"]:
        assert (
            list(fate)
            == ["quantizer", "quantize", "dequantize"]
            == documented("An entry of `fates`")
        )
        assert fate["quantize"] is None or list(fate["quantize"]) == ["fate", "step", "reason"]
        assert all(
            list(reader) == ["consumer", "fate", "step", "reason"] for reader in fate["dequantize"]
        )
    for decision in document["decisions"]:
        assert list(decision) == [
            "rule",
            "subject",
            "outcome",
            "reason",
            "expected",
            "found",
            "hint",
            "alternatives",
        ]
        assert all(
            list(weighed) == ["home", "cost", "why_not"] for weighed in decision["alternatives"]
        )


def test_types_belong_to_the_values_and_read_back(document) -> None:
    for step in document["steps"]:
        assert len(step["types"]["inputs"]) == len(step["inputs"])
        assert len(step["types"]["outputs"]) == len(step["outputs"])
        for text in filter(None, step["types"]["inputs"] + step["types"]["outputs"]):
            plan = parse_plan(f"plan p target=t\n  in %x : {text}\n  out %x\n")
            assert plan.type("x").dtype.value == text.split("[")[0]


def test_every_fate_is_documented() -> None:
    for fates in (QuantizeFate, DequantizeFate):
        for fate in fates:
            assert f"`{fate.value}`" in SCHEMA


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
