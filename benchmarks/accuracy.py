"""How far quantized outputs are from the f32 model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fqfuse.accuracy.measures import sqnr_of
from fqfuse.measure.arrays import Array


def top1_agreement(reference: Array, result: Array) -> float:
    """Share of samples, or of their pixels, whose largest entry along axis 1, the classes, stands at
    the same place.
    """
    return float((reference.argmax(1) == result.argmax(1)).mean())


def compare_outputs(
    reference: Sequence[Array], result: Sequence[Array], names: Sequence[str], logits: str
) -> Mapping[str, Any]:
    """Return the lowest SQNR of all outputs (dB), each output's, and top-1 agreement on
    ``logits``.

    ValueError if the outputs differ in number or shape: then the engine ran something else.
    """
    shapes = [[a.shape for a in outputs] for outputs in (reference, result)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"outputs have shapes {shapes[1]}, the f32 model's have {shapes[0]}")
    each = {name: sqnr_of(a, b) for name, a, b in zip(names, reference, result, strict=True)}
    index = list(names).index(logits)
    return {
        "sqnr_db": min(each.values()),
        "outputs_db": each,
        "top1": top1_agreement(reference[index], result[index]),
    }
