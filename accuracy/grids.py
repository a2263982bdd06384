"""What a quantizer can represent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from .measures import Floats


@dataclass(frozen=True)
class Grid:
    """What a quantizer can represent: numbers from `low` to `high`, `step` apart; arrays that broadcast against the value."""

    low: Floats
    high: Floats
    step: Floats


def grid_of(int8: Graph, quantizer: Node, rank: int) -> Grid | None:
    """What a quantizer can represent; None where its range is computed at run time."""
    if quantizer.op == "FakeQuantize":
        ends = [end for value in quantizer.inputs[1:5] if (end := int8.constant(value)) is not None]
        if len(ends) < 4:
            return None
        low, high, out_low, out_high = (end.astype(np.float64) for end in ends)
        step = np.abs(out_high - out_low) / (quantizer.attr("levels", int) - 1)
        return Grid(np.minimum(low, high), np.maximum(low, high), step)
    scale, zero = (part.astype(np.float64) for part in quantizer.quant.shaped(rank))
    ends = [(quantizer.attr(end, int) - zero) * scale for end in ("lo", "hi")]
    return Grid(np.minimum(*ends), np.maximum(*ends), np.abs(scale))
