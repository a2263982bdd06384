"""Biases of attention by the distance of query and key, of com.microsoft: those of T5."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from ...ir.types import DType
from ..importer import Handler
from .derived import Derived
from .forms import Form, handlers
from .fused import MICROSOFT
from .heads import distances, known_size


def _bias(at: Derived) -> None:
    """RelativePositionBias(bias_table, query_length, key_length){max_distance, is_bidirectional}: [1, N, S, T], of bias_table, which
    holds N rows of as many numbers as there are buckets, that of the bucket of each distance, the same for all from
    max_distance on.
    """
    table, most = at.input(0), at.node.attrs["max_distance"]
    buckets, heads = (known_size(at, table, axis, "size of the table") for axis in (0, 1))
    both = bool(at.node.attrs["is_bidirectional"])
    exact = buckets // (4 if both else 2)
    if exact < 1 or most <= exact:
        raise at.node.invalid(f"{at.node.op} of {buckets} buckets up to a distance of {most}")
    rows = at.real("Reshape", [table, at.integers("rows", [heads, buckets])], role="rows")
    places = at.integers("buckets", _buckets(buckets, most, both))
    by_distance = at.real("Gather", [rows, places], {"axis": 1}, role="by distance")
    counts = [
        at.real(
            "Reshape",
            [
                at.ctx.cast(at.node, at.input(i), DType.S64, f"s64 {i}"),
                at.integers(f"one {i}", [1]),
            ],
            role=f"count {i}",
        )
        for i in (1, 2)
    ]
    distance = distances(at, *counts)
    ends = [at.integers(role, number) for role, number in (("nearest", -most), ("farthest", most))]
    within = at.real("Clip", [distance, *ends], role="within")
    shifted = at.real("Add", [within, ends[1]], role="place")
    bias = at.real("Gather", [by_distance, shifted], {"axis": 1}, role="bias")
    zero = at.integers("batch", [0])
    at.real("Unsqueeze", [bias, zero], output=at.node.output(0))


def _buckets(count: int, most: int, both: bool) -> npt.NDArray[np.int64]:
    """The bucket of each distance (key - query) from -most to most: one for each up to a half of them, wider and wider ones behind
    it. Those of later keys are the second half, or that of 0.
    """
    distance = np.arange(-most, most + 1)
    offset = np.zeros_like(distance)
    if both:
        count //= 2
        offset = np.where(distance > 0, count, 0)
        away = np.abs(distance)
    else:
        away = np.maximum(-distance, 0)
    exact = count // 2
    ratio = np.log(np.maximum(away, 1).astype(np.float32) / np.float32(exact))
    steps = ratio / np.float32(math.log(most / exact)) * np.float32(count - exact)
    wide = np.minimum(exact + steps.astype(np.int64), count - 1)
    return np.asarray(offset + np.where(away < exact, away, wide), np.int64)


HANDLERS: Final[Mapping[tuple[str, str], Handler]] = handlers(
    MICROSOFT,
    {
        "RelativePositionBias": Form(
            "bias_table query_length key_length",
            "output",
            _bias,
            {"max_distance": int, "is_bidirectional": 0},
        ),
    },
)
