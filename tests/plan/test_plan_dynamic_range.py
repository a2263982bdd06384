"""The step that takes scale and zero point of a tensor's range: a primitive of our own in text and
file, what is refused of it, and ONNX Runtime's numbers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from laws.runtimes import EACH_RUNTIME
from support.onnx_cases import model, node, run_ort
from support.plan_text import parse_plan

import fqfuse
from fqfuse.plan.targets import TARGETS
from fqfuse.plan.text import print_plan
from fqfuse.plan.verify import verify_plan

STEP = "dynamic_range<DynamicRange>(src=%x)"
TEXT = f"""
plan range target=onednn-v3
  in %x : f32[N,3]
  #0 %s : f32[], %z : u8[] = {STEP} ; range
  out %s, %z
"""
MODEL = model(
    [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])],
    inputs={"x": ["N", 3]},
    outputs=["q", "s", "z"],
)


@pytest.mark.parametrize("target", TARGETS)
def test_text_and_file(target: str, tmp_path: Path) -> None:
    plan = parse_plan(TEXT.replace("onednn-v3", target))
    assert verify_plan(plan) == []
    assert parse_plan(print_plan(plan)) == plan
    fqfuse.save_plan(plan, tmp_path / "range.onnx")
    assert fqfuse.load_plan(tmp_path / "range.onnx") == plan
    compiled = fqfuse.compile(MODEL, target=target)
    assert compiled.steps[0].primitive == "dynamic_range"
    fqfuse.save_plan(compiled, tmp_path / "model.onnx")
    assert fqfuse.load_plan(tmp_path / "model.onnx") == compiled


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("%z : u8[]", "%z : s8[]", "%z is recorded as s8[]"),
        ("%z : u8[]", "%z : u8[1]", "%z is recorded as u8[1]"),
        ("%s : f32[]", "%s : u8[]", "%s is recorded as u8[]"),
        ("%x : f32[N,3]", "%x : u8[N,3]", "reads src as u8"),
        ("(src=%x)", "()", "lacks its argument src"),
        ("(src=%x)", "(src=%x, scale=%x)", "has the role scale"),
        ("(src=%x)", "(src=%x) | eltwise(relu)", "post-op"),
        ("(src=%x)", "(src=%x) scales(src=0.5)", "scale"),
        ("<DynamicRange>", "<Relu>", "is of the op Relu"),
        ("%z : u8[] =", "%z : u8[], %w : u8[] =", "has 3 outputs"),
    ],
)
def test_what_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    found = " ".join(each.message for each in verify_plan(parse_plan(TEXT.replace(old, new, 1))))
    assert says in found, found


SCALES = (1e-36, 1e-3, 1.0, 255.0, 1e36)


@EACH_RUNTIME
def test_the_numbers_are_onnx_runtimes_own(runtime: str) -> None:
    session = fqfuse.InferenceSession(fqfuse.compile(MODEL), runtime, 2)
    rng = np.random.default_rng(5)
    given = [
        (rng.standard_normal((rows, 3)) * scale + offset * scale).astype(np.float32)
        for rows in (1, 4, 257)
        for scale in SCALES
        for offset in (-9, 0, 0.5, 9)
    ]
    for x in [*given, np.zeros((2, 3), np.float32), np.full((1, 3), -2.5, np.float32)]:
        for found, expected in zip(
            session.run(None, {"x": x}), run_ort(MODEL, {"x": x}), strict=True
        ):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_both_runtimes_agree_where_no_range_is_a_number() -> None:
    """And where there are no elements, of which ONNX Runtime takes no range."""
    plan = parse_plan(TEXT)
    sessions = [fqfuse.InferenceSession(plan, runtime, 2) for runtime in ("numpy", "onednn")]
    for values in ([np.nan, 1, 2], [np.inf, 1, 2], [-np.inf, np.inf, 0], []):
        x = np.array(values, np.float32).reshape(-1, 3)
        first, second = (session.run(None, {"x": x}) for session in sessions)
        for found, expected in zip(first, second, strict=True):
            assert found.tobytes() == expected.tobytes()


@EACH_RUNTIME
def test_plans_that_call_it_an_operator_still_run(runtime: str) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    new = parse_plan(TEXT)
    old = parse_plan(TEXT.replace(STEP, "onnx.DynamicRange(x=%x)"))
    assert verify_plan(old) == []
    first, second = (
        fqfuse.InferenceSession(plan, runtime).run(None, {"x": x}) for plan in (old, new)
    )
    for found, expected in zip(first, second, strict=True):
        np.testing.assert_array_equal(found, expected)
