"""QLinearMatMul with each form of scales and zero points that ONNX allows, against exact integers and
float64: one number, one for each row or column, and tensors that differ for each matrix of a batch.

ONNX Runtime takes few of these forms, so that it is no judge here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.random import Generator, default_rng
from onnx import helper
from support.onnx_cases import model, node

import fqfuse

A = np.ndarray[Any, Any]

NAMES = ("a", "as", "az", "b", "bs", "bz", "ys", "yz")
NEAR_A_TIE = 1e-4
"""Relative: f32 sums and scales may round a number to the other side of a tie."""


def _codes(rng: Generator, kind: Any, shape: tuple[int, ...]) -> A:
    info = np.iinfo(kind)
    return np.asarray(rng.integers(info.min, info.max + 1, shape)).astype(kind)


def _parameters(rng: Generator, codes: A, axis: int) -> tuple[A, A]:
    """Scales and zero points of an operand, whose zero points differ in most of the cases."""
    rank, kept = codes.ndim, codes.ndim + axis
    summed = rank - 1 if axis == -2 else rank - 2
    forms = (
        (),
        (1,),
        (codes.shape[axis],),
        tuple(1 if i == summed else size for i, size in enumerate(codes.shape)),
        tuple(size if i == kept else 1 for i, size in enumerate(codes.shape)),
        tuple(size if i < rank - 2 else 1 for i, size in enumerate(codes.shape)),
    )
    shape = forms[int(rng.integers(len(forms)))]
    zero = _codes(rng, codes.dtype, shape if rng.random() < 0.7 else ())
    scale = np.asarray(rng.uniform(0.005, 0.05, shape)).astype(np.float32)
    return scale, np.array(np.broadcast_to(zero, shape))


def _draw(seed: int) -> dict[str, A]:
    rng = default_rng(seed)
    kinds = [(x, y) for x in (np.uint8, np.int8) for y in (np.uint8, np.int8)]
    left, right = kinds[int(rng.integers(4))]
    m, k, n = (int(size) for size in rng.integers(1, 9, 3))
    m, n = (k if rng.random() < 0.3 else size for size in (m, n))  # what is mixed up still fits
    batch = tuple(int(size) for size in rng.integers(1, 4, int(rng.integers(3))))
    a = _codes(rng, left, (*batch, m, k) if rng.random() < 0.8 else (m, k))
    b = _codes(rng, right, (*batch, k, n) if rng.random() < 0.6 else (k, n))
    ys = np.asarray(rng.uniform(0.05, 0.3)).astype(np.float32)
    given = (a, *_parameters(rng, a, -2), b, *_parameters(rng, b, -1), ys, _codes(rng, left, ()))
    return dict(zip(NAMES, given, strict=True))


def _real(codes: A, scale: A, zero: A, axis: int) -> A:
    along = [-1 if i == codes.ndim + axis else 1 for i in range(codes.ndim)]
    scale, zero = (p.reshape(along) if p.ndim == 1 and p.size > 1 else p for p in (scale, zero))
    real: A = (codes.astype(np.int64) - zero).astype(np.float64) * scale.astype(np.float64)
    return real


@pytest.mark.parametrize("seed", range(60))
def test_each_form_of_scales(seed: int) -> None:
    given = _draw(seed)
    rng = default_rng([seed, 1])
    fixed = set(NAMES[1:] if rng.random() < 0.6 else NAMES[:0]) - (
        {"b"} if rng.random() < 0.3 else set()
    )
    fed = {name: data for name, data in given.items() if name not in fixed}
    proto = model(
        [node("QLinearMatMul", NAMES, ["y"], name="q")],
        inputs={name: list(data.shape) for name, data in fed.items()},
        constants={name: given[name] for name in fixed},
        types={name: helper.np_dtype_to_tensor_dtype(data.dtype) for name, data in fed.items()},
        opset=int(rng.choice([10, 13, 21])),
    )
    a, scale, zero, b, b_scale, b_zero, ys, yz = (given[name] for name in NAMES)
    sums = np.matmul(_real(a, scale, zero, -2), _real(b, b_scale, b_zero, -1)) / float(ys)
    info = np.iinfo(yz.dtype)
    wanted = np.clip(np.rint(sums) + float(yz), info.min, info.max)
    at_a_tie = np.abs(sums - np.floor(sums) - 0.5) < NEAR_A_TIE * np.maximum(1, np.abs(sums))
    plan = fqfuse.compile(proto)
    assert all(step.op != "Onnx" for step in plan.steps)
    for backend in ("numpy", "onednn"):
        (found,) = fqfuse.InferenceSession(plan, backend, threads=1).run(None, fed)
        assert (found.dtype, found.shape) == (yz.dtype, wanted.shape)
        assert (np.abs(found - wanted) <= at_a_tie).all(), backend
