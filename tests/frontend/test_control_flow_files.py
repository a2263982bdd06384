"""Loops and branches as PyTorch's exporters write them (`make_control_flow.py`), as they are and behind
ONNX Runtime's quantize_dynamic, which looks into bodies where it is told to: all bodies have plans, all
quantized products in them are int8, and both runtimes give what ONNX Runtime gives.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laws.runtimes import RUNTIMES
from onnxruntime import quantization
from support.judge import ort_session

import fqfuse
from fqfuse.plan.file import plan_bytes, read_plan
from fqfuse.plan.types import Plan, runs_in_int8

FOLDER = Path(__file__).parent / "control_flow"
WEIGHTS = {"steps": 2, "greedy": 4, "branch": 3, "cond": 3, "scan": 1}
"""File -> how many of its products have weights."""


def feeds(name: str, length: int) -> dict[str, Any]:
    random = np.random.default_rng(length)
    if name == "greedy":
        return {"tokens": random.integers(0, 30, (1, 3)), "steps": np.array(length)}
    shape = {"steps": (length, 2, 8), "scan": (4, 2, 8), "cond": (2, 8)}.get(name, (length, 8))
    return {"x": random.standard_normal(shape).astype(np.float32) + (length % 2) - 0.5}


def products(plan: Plan) -> tuple[int, int]:
    parts = [plan, *(body for _, body in plan.within)]
    found = [
        runs_in_int8(part, step)
        for part in parts
        for step in part.steps
        if step.primitive == "matmul"
    ]
    return sum(found), len(found)


@pytest.mark.each_case
@pytest.mark.parametrize("quantized", [False, True], ids=["f32", "dynamic"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_bodies_of_files_run_as_plans(name: str, quantized: bool, tmp_path: Path) -> None:
    path = FOLDER / f"{name}.onnx"
    if quantized:
        told = {"EnableSubgraph": True}
        kind = quantization.QuantType.QInt8
        source, path = path, tmp_path / "dynamic.onnx"
        quantization.quantize_dynamic(source, path, weight_type=kind, extra_options=told)
    plan = fqfuse.compile(path)
    kept = [step for step in plan.steps if step.op == "Onnx" and step.bodies is None]
    assert len(kept) == (name == "steps")  # behind its Loop rows are a list, which is joined
    int8, count = products(plan)
    assert count >= WEIGHTS[name]
    assert int8 == (WEIGHTS[name] if quantized else 0)
    saved = read_plan(plan_bytes(plan))
    judge = ort_session(path, optimized=True)
    for runtime in RUNTIMES:
        session = fqfuse.InferenceSession(saved, backend=runtime, threads=1)
        for length in (3, 6, 1):
            given = feeds(name, length)
            for found, wanted in zip(session.run(None, given), judge.run(None, given), strict=True):
                assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
                # f32 in another order, and products of codes scaled in another one: some last bits of
                # values around 1, in up to 6 trips; a code of dynamic quantization that a last bit
                # turns is 1/255 of a range of about 4
                limit = 2e-2 if quantized else 2e-6
                np.testing.assert_allclose(found, wanted, rtol=0, atol=limit)
