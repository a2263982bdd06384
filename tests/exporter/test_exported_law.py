"""The law of exporting: a model that is written back computes what it did.

The oracle is ONNX Runtime without optimizations, on random models whose results are known to the
bit, or to a bound that each carries (`laws/layouts.py`). It runs what was written without
optimizations, too, and with them, as people do: then it would make other numbers of many a source
file, so that the exporter writes around what it does (`test_liberties.py`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from laws.layouts import draw_case
from support.onnx_cases import run_ort

import fqfuse
from fqfuse.exporter import FORMS

FUZZ = not settings.default.derandomize
EACH = 5_000 if FUZZ else 25
BLOCKS = 16
USUAL = 4
"""Blocks of a usual run; the others are slow."""


@pytest.mark.each_case
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "block",
    [
        pytest.param(number, marks=() if number < USUAL else pytest.mark.slow)
        for number in range(BLOCKS)
    ],
)
def test_exported_models_compute_what_they_did(block: int, form: str, tmp_path: Path) -> None:
    for seed in range(block * EACH, (block + 1) * EACH):
        case = draw_case(seed)
        expected = run_ort(case.model, case.feeds)
        exported = fqfuse.export(case.model, tmp_path / "out.onnx", to=form)
        for optimized in (False, True):
            results = run_ort(exported.model, case.feeds, optimized=optimized)
            for name, result, wanted in zip(case.outputs, results, expected, strict=True):
                told = f"seed {seed}, optimized {optimized}: {name}"
                assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape), told
                far = np.abs(result.astype(np.float64) - wanted.astype(np.float64))
                assert np.all(far <= case.errors[name]), f"{told} is up to {np.nanmax(far)} off"
