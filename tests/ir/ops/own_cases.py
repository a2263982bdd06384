"""Cases of fqfuse's own ops, which no other runtime has: for the laws of traits and the
completeness of the table.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fqfuse.ir.types import DType, Quantization

from .harness import Case, case, normal, positive

X = normal(2, 3, 4, 5, scale=2)


def _ranges(*values: npt.ArrayLike) -> list[np.ndarray]:
    return [np.asarray(value, np.float32) for value in values]


PER_CHANNEL = Quantization.of([0.1, 0.2, 0.3], [3, 0, -7], 1)


def _dynamic_layer(kind: type[np.generic], *, columns: bool) -> Case:
    """2 directions of 3 hidden values, each with a scale, or each column of its weights."""
    shape = (2, 12) if columns else (2,)
    parameters = positive(*shape) / 300, np.full(shape, 7 if kind is np.uint8 else 0, kind)
    weights = normal(2, 5, 12, dtype=kind), normal(2, 3, 12, dtype=kind)
    return case(
        "DynamicQuantizeLSTM",
        normal(4, 2, 5),
        *weights,
        *parameters,
        *parameters,
        normal(2, 24),
        direction="bidirectional",
    )


OWN_CASES: tuple[Case, ...] = (
    case("FakeQuantize", X, *_ranges(-1, 1.5, -1, 1.5), levels=256),
    case("FakeQuantize", X, *_ranges(1, -1, 0, 10), levels=9),
    case("FakeQuantize", *_ranges(0.3, -1, 1, -1, 1), levels=256),
    case("FakeQuantize", X, *_ranges(-2, 1, -1, 2), levels=4, auto_broadcast="numpy"),
    case(
        "FakeQuantize",
        X,
        *(np.full(X.shape, v, np.float32) for v in (-1, 2, 3, -4)),
        levels=17,
        auto_broadcast="none",
    ),
    case(
        "Quantize",
        X,
        quant=Quantization.of(0.05, 128),
        dtype=DType.U8,
        lo=0,
        hi=255,
        order="zp_first",
    ),
    case("Quantize", X, quant=PER_CHANNEL, dtype=DType.S8, lo=-127, hi=127, order="round_first"),
    case(
        "Quantize",
        X,
        quant=Quantization.of(-0.05, 10.5),
        dtype=DType.U8,
        lo=0,
        hi=255,
        order="zp_first",
    ),
    case("Dequantize", normal(2, 3, 4, dtype=np.uint8), quant=Quantization.of(0.05, 128)),
    case("Dequantize", normal(2, 3, 4, dtype=np.int8), quant=PER_CHANNEL),
    case("Dequantize", normal(2, 3, 4, dtype=np.int32), quant=Quantization.of(-0.05)),
    case("RunTimeDequantize", normal(2, 3, dtype=np.uint8), *_ranges(0.25)),
    case("RunTimeDequantize", normal(2, 3, dtype=np.uint8), *_ranges(0.3), np.uint8(119)),
    case("RunTimeDequantize", normal(2, 3, dtype=np.int8), *_ranges(-0.3), np.int8(-7)),
    case(
        "AUGRU",
        normal(4, 2, 5),
        normal(2, 9, 5),
        normal(2, 9, 3),
        positive(4, 2, 1) / 2,
        normal(2, 18),
        normal(2, 2, 3),
        direction="bidirectional",
    ),
    case("FakeQuantizeGrid", *_ranges(-1, 1.5, -1, 1.5), levels=256, rank=4),
    case("FakeQuantizeGrid", *_ranges([[1], [0.5]], [-1, 0.5], 3, 3), levels=2, rank=2),
    case("FakeQuantizeGrid", *_ranges([[-1], [0]], 1, 0, [[5], [-3]]), levels=16, rank=3),
    case("DynamicRange", X),
    *(_dynamic_layer(kind, columns=columns) for kind in (np.uint8, np.int8) for columns in (0, 1)),
    case("DynamicRange", np.abs(X)),
    case("DynamicRange", np.zeros((3, 2), np.float32)),
    case(
        "DequantizeBlocks",
        normal(3, 2, 8, dtype=np.uint8),
        np.abs(normal(3, 2, 2)),
        bits=4,
        block=8,
        size=13,
    ),
    case(
        "DequantizeBlocks",
        normal(3, 12, dtype=np.uint8),
        normal(3, 3),
        normal(3, 3, dtype=np.uint8),
        bits=8,
        block=4,
        size=12,
    ),
    case(
        "DequantizeBlocks",
        normal(2, 2, dtype=np.uint8),
        normal(2, 1),
        normal(2, 1),
        bits=2,
        block=8,
        size=5,
    ),
    case("DynamicBlocks", X, block=2),
    case("DynamicBlocks", normal(2, 3, 13), block=8),
    case("DynamicBlocks", np.zeros((3, 2), np.float32), block=16),
    case(
        "MatMulBlocks",
        normal(2, 3, 13),
        normal(5, 8, dtype=np.uint8),
        normal(5, 2),
        normal(5, 2, dtype=np.uint8) % 16,
        bits=4,
        block=8,
        size=13,
        source_bits=8,
    ),
    case(
        "MatMulBlocks",
        normal(2, 3, 13),
        normal(5, 8, dtype=np.uint8),
        normal(5, 2),
        normal(5, 2, dtype=np.uint8) % 16,
        bits=4,
        block=8,
        size=13,
    ),
    case(
        "Lookup",
        normal(2, 3, 4, dtype=np.int8),
        normal(256, dtype=np.uint8),
        quant=Quantization.of(0.1, 3),
    ),
    case("Lookup", normal(2, 3, 4, dtype=np.uint8), normal(256)),
    case("Shuffle", normal(2, 6, 4), axis=1, group_size=3),
    case("Shuffle", normal(2, 3, 4, dtype=np.uint8), axis=-1, group_size=2),
    case("SliceLike", normal(2, 6, 4), normal(3, 5, dtype=np.int64), axis=1, size_axis=-1),
    case("SliceLike", normal(2, 3, 4, dtype=np.uint8), normal(0), axis=-1, size_axis=0),
    case("SliceLike", normal(2, 3), normal(7), axis=0, size_axis=0),
)
