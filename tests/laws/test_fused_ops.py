"""What ONNX Runtime's optimizers write means what ONNX Runtime computes: random attributes, inputs and
shapes for each row, its own session without optimizations against both of our runtimes.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from support.attention_cases import ATTENTION
from support.contrib_cases import CASES as FUSED
from support.contrib_cases import UNRUN, Case, broken
from support.expert_cases import MIXTURES
from support.onnx_cases import run_ort
from support.qoperator_cases import CODES
from support.state_cases import OF_ONNX, STATES

import fqfuse
from fqfuse.frontend.operators import (
    attention,
    codebook,
    embedding,
    experts,
    fused,
    gated,
    group_query,
    linear_attention,
    qoperator,
    relative,
    rotary,
    standard_attention,
)

CASES = {**FUSED, **ATTENTION, **CODES, **STATES, **MIXTURES}

HALVES = (
    "Attention",
    "MultiHeadAttention",
    "GroupQueryAttention",
    "ai.onnx.Attention",
    "RotaryEmbedding",
    "FusedMatMul",
    "FusedConv",
    "SkipLayerNormalization",
)
"""Rows with constants or sums of their own, whose types must be those of the inputs."""

ATOL = 2e-5
"""Of sums of some dozens of products of normally distributed numbers; the approximations of exp, erf and
tanh differ by less."""

CODE = 1
"""ONNX Runtime requantizes in one float product, so that codes may differ where a number lies on a tie."""


HALF = 4e-3
"""Four units in the last place of a half float: ONNX Runtime rounds some of them in between."""


def agrees(case: Case, rtol: float = 1e-4, atol: float = ATOL) -> None:
    proto = case.model()
    wanted = run_ort(proto, case.feeds)
    plan = fqfuse.compile(proto)
    kept = [step.op for step in plan.steps if step.op == "Onnx" and not step.bodies]
    assert kept == [] or case.op == "GridSample"  # ONNX's own, which runs as it is
    for backend in ("numpy", "onednn"):
        found = fqfuse.InferenceSession(plan, backend, threads=1).run(None, case.feeds)
        for name, *both in zip(filter(None, case.outputs), found, wanted, strict=True):
            mine, theirs = case.seen(name, both[0]), case.seen(name, both[1])
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), name
            codes = theirs.dtype in (np.int8, np.uint8)
            np.testing.assert_allclose(
                mine.astype(np.float64) if codes else mine,
                theirs.astype(np.float64) if codes else theirs,
                rtol=0 if codes else rtol,
                atol=CODE if codes else atol * case.scale,
                err_msg=f"{backend} {name}",
            )


@pytest.mark.parametrize("op", CASES)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_each_row_computes_what_onnxruntime_does(op: str, seed: int) -> None:
    agrees(CASES[op](np.random.default_rng(seed)))


@pytest.mark.parametrize("op", HALVES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_rows_take_half_floats(op: str, seed: int) -> None:
    case = CASES[op](np.random.default_rng(seed))
    for name, value in case.inputs.items():
        scale = name.startswith("scale_")  # of codes, which is f32
        if value is not None and value.dtype == np.float32 and not scale:
            case.inputs[name] = value.astype(np.float16)
    case.outputs, case.stated = case.outputs[:3], ()  # ONNX Runtime has no scores of halves
    agrees(case, HALF, HALF)


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_what_is_broken_is_compiled_or_refused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for op, draw in CASES.items():
        case = broken(rng, draw(rng))
        with suppress(fqfuse.FqfuseError):  # any other exception is a crash
            fqfuse.compile(case.model())
        note(op)


def test_every_row_has_a_case() -> None:
    tables = (
        attention,
        codebook,
        embedding,
        experts,
        fused,
        gated,
        group_query,
        linear_attention,
        qoperator,
        relative,
        rotary,
        standard_attention,
    )
    rows = {f"{domain or 'ai.onnx'}.{op}" for table in tables for domain, op in table.HANDLERS}
    cases = {
        op if op.startswith("ai.onnx.") else f"com.microsoft.{op}"
        for op in (*CASES, *UNRUN, *OF_ONNX)
    }
    assert rows == cases
