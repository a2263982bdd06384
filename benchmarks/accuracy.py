"""How far quantized outputs are from the f32 model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fqfuse.measure.arrays import Array

__all__ = ["compare_outputs", "sqnr_db", "top1_agreement"]


def sqnr_db(reference: Array, result: Array) -> float:
    """Signal to quantization noise in dB: 10 log10(sum(reference^2) / sum((reference - result)^2));
    inf if equal, nan with nan.
    """
    signal = np.square(reference, dtype=np.float64).sum()
    noise = np.square(reference.astype(np.float64) - result).sum()
    return float(10 * np.log10(signal / noise)) if noise else float("inf")


def top1_agreement(reference: Array, result: Array) -> float:
    """Share of rows (last axis: classes) whose largest entry stands at the same place."""
    return float((reference.argmax(-1) == result.argmax(-1)).mean())


def compare_outputs(
    reference: Sequence[Array], result: Sequence[Array], names: Sequence[str], logits: str
) -> Mapping[str, Any]:
    """Return the lowest SQNR of all outputs (``sqnr_db``), each output's, and top-1 agreement on
    ``logits``.

    ValueError if the outputs differ in number or shape: then the engine ran something else.
    """
    shapes = [[a.shape for a in outputs] for outputs in (reference, result)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"outputs have shapes {shapes[1]}, the f32 model's have {shapes[0]}")
    each = {name: sqnr_db(a, b) for name, a, b in zip(names, reference, result, strict=True)}
    index = list(names).index(logits)
    return {
        "sqnr_db": min(each.values()),
        "outputs_db": each,
        "top1": top1_agreement(reference[index], result[index]),
    }
