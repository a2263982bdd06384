"""Which recurrent layers of codes may answer otherwise on a CPU without VNNI."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..ir.ops.recurrent import DYNAMIC, gates_of
from ..ir.ops.spec import Array
from ..ir.types import DType
from .summation import Summation, pairs_at_risk, summation
from .types import Plan, Step

_WEIGHTS = ("w", "r")
_CODES = (DType.U8, DType.S8)
_F32 = 2**24
_LARGEST_PRODUCT = 255 * (128 + 128)
"""Of a code, and a weight less its zero point."""

_RESET = 1  # which of GRU's gates, as ONNX orders them
ALL = (0, 255)
"""The codes that a hidden state, and an input that is quantized in a run, can have."""


def law_of_layer(plan: Plan, step: Step, isa: str) -> Summation | None:
    """How the products of a recurrent layer are summed; None of one that multiplies no codes.

    Those of LSTM and GRU are oneDNN's, of DynamicQuantizeLSTM those of its matmul.
    """
    names = [step.arg(role) for role in ("src", *_WEIGHTS)]
    if step.primitive != "rnn" or None in names:
        return None
    src, *weights = (plan.type(name).dtype for name in names if name)
    if any(dtype not in _CODES for dtype in weights):
        return None
    if step.op == DYNAMIC:
        return summation(isa, "matmul", signed=False)
    return summation(isa, "rnn", signed=False) if src is DType.U8 else None


def outputs_of_layer(plan: Plan, step: Step) -> int:
    """Hidden values of all directions; 0 where the plan does not tell."""
    shape = plan.type(step.arg("r") or "").shape or ()
    if len(shape) != 3 or not all(isinstance(dim, int) for dim in shape):
        return 0
    directions, first, last = (int(dim) for dim in shape if isinstance(dim, int))
    return directions * (last if step.op == DYNAMIC else first) // gates_of(step.op)


def differing_of_layer(
    plan: Plan, step: Step, law: Summation, codes: tuple[int, int]
) -> tuple[int, ...]:
    """The hidden values, of one direction behind the other, that can differ from the exact ones; all where
    weights are computed in a run.

    A sum that saturates changes its own hidden value, and in the next step, which multiplies it by
    all weights, every one of the direction. GRU multiplies what the reset gate leaves of the hidden state
    in the same step.
    """
    of = outputs_of_layer(plan, step)
    if law.pairs is None:
        return ()
    data = [plan.constants.get(step.arg(role) or "") for role in _WEIGHTS]
    known = [array for array in data if array is not None]
    if len(known) != len(data):
        return tuple(range(of))
    hidden, found = of // known[0].shape[0], []
    shape = plan.type(step.arg("src") or "").shape
    single = shape is not None and shape[0] == 1
    for d in range(known[0].shape[0]):
        own, spreads = set[int](), not single
        for array, held in zip(known, (ALL if step.op == DYNAMIC else codes, ALL), strict=True):
            rows = _rows_at_risk(step, law, array[d], held)
            own.update((rows % hidden).tolist())
            spreads |= step.op == "GRU" and bool(np.isin(rows // hidden, _RESET).any())
        if own and spreads:
            own = set(range(hidden))
        found += [d * hidden + unit for unit in sorted(own)]
    return tuple(found)


def rounded_of_layer(plan: Plan, step: Step) -> tuple[int, ...]:
    """The hidden values whose sums some of oneDNN's code may have in f32 on its way, beyond 2^24.

    None of LSTM and GRU: all their code adds both products in s32, and makes an f32 of the sum once, which is
    the layer's own arithmetic. Of DynamicQuantizeLSTM, whose products are matmuls, all where one is so deep that
    its largest codes and zero points get there.
    """
    if step.op != DYNAMIC:
        return ()
    for role in _WEIGHTS:
        shape = plan.type(step.arg(role) or "").shape or ()
        deep = shape[1] if len(shape) == 3 else None
        if not isinstance(deep, int) or deep * _LARGEST_PRODUCT > _F32:
            return tuple(range(outputs_of_layer(plan, step)))
    return ()


def _rows_at_risk(step: Step, law: Summation, weights: Array, codes: tuple[int, int]) -> Array:
    """The gates' rows, of all gates one behind the other, of which a pair can leave s16."""
    matrix = _codes_by_column(step, weights)
    risky = np.zeros(matrix.shape[1], np.bool_)
    for each in _laws(law):
        risky |= pairs_at_risk(each, matrix, matrix.shape[0], codes)[1].any(axis=0)
    return np.flatnonzero(risky)


def _codes_by_column(step: Step, weights: Array) -> Array:
    """Weights of a direction as s8 [K, gates]: DynamicQuantizeLSTM has them so, and of u8 128 more."""
    if step.op != DYNAMIC:
        return weights.T
    return weights if weights.dtype == np.int8 else (weights.astype(np.int16) - 128).astype(np.int8)


def _laws(law: Summation) -> Iterator[Summation]:
    """With as many rows as there may be, and with fewer, which are not cut."""
    yield law
    if law.rows_cut > 1:
        yield replace(law, block=0)
