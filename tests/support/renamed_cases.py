"""Random nodes of com.microsoft that exporters and converters write, and quantizers of 4 bits by a table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.random import Generator
from support.contrib_cases import Case, Draw, chosen, floats, given, sizes, some


def _bnb4(rng: Generator) -> Case:
    n, k, rows = (int(size) for size in rng.integers(1, 40, 3))
    block = chosen(rng, 16, 32, 64)
    codes = rng.integers(0, 256, -(-n * k // 2)).astype(np.uint8)
    most = np.abs(floats(rng, -(-n * k // block)))
    x = floats(rng, *sizes(rng, int(rng.integers(0, 3))), rows, k)
    attrs = {"K": k, "N": n, "block_size": block, "quant_type": int(rng.integers(2))}
    if rng.random() < 0.5:
        attrs["transB"] = (
            1  # of 0 ONNX Runtime's kernel makes another product, and columns of nothing
        )
    inputs = {"x": x, "codes": codes, "absmax": most}
    return Case("MatMulBnb4", inputs, attrs, frozenset({"codes", "absmax"}))


def _gather_nd(rng: Generator) -> Case:
    shape = sizes(rng, 3)
    depth = int(rng.integers(1, 4))
    indices = rng.integers(0, shape[:depth], (*sizes(rng, int(rng.integers(1, 3))), depth))
    inputs = {"x": floats(rng, *shape), "indices": indices.astype(chosen(rng, np.int32, np.int64))}
    return Case("GatherND", inputs, {}, some(rng, "indices"))


def _grid_sample(rng: Generator) -> Case:
    n, c, h, w, rows, columns = sizes(rng, 6)
    attrs = {
        "align_corners": int(rng.integers(2)),
        "mode": chosen(rng, "bilinear", "nearest", "bicubic"),
        "padding_mode": chosen(rng, "zeros", "border", "reflection"),
    }
    grid = rng.uniform(-1.2, 1.2, (n, rows, columns, 2)).astype(np.float32)
    return Case("GridSample", {"x": floats(rng, n, c, h, w), "grid": grid}, given(rng, attrs))


def _unique(rng: Generator) -> Case:
    x = rng.integers(0, 5, sizes(rng, 1, 20)).astype(np.float32)
    return Case("Unique", {"x": x}, {}, outputs=("y", "idx", "counts"))


def _unfold(rng: Generator) -> Case:
    shape = sizes(rng, int(rng.integers(1, 5)))
    axis = int(rng.integers(-len(shape), len(shape)))
    attrs = {"dim": axis, "size": int(rng.integers(1, shape[axis] + 1)), "step": chosen(rng, 1, 2)}
    if attrs["step"] == 1 and rng.random() < 0.5:
        del attrs["step"]
    return Case("UnfoldTensor", {"x": floats(rng, *shape)}, attrs)


def _distances(rng: Generator) -> Case:
    m, k, n = sizes(rng, 3, 9)
    attrs = {"metric": chosen(rng, "euclidean", "sqeuclidean")}
    inputs = {"a": floats(rng, m, n), "b": floats(rng, k, n)}
    return Case("CDist", inputs, attrs, some(rng, "b"), scale=10)


RENAMED: Mapping[str, Draw] = {
    "MatMulBnb4": _bnb4,
    "GatherND": _gather_nd,
    "GridSample": _grid_sample,
    "Unique": _unique,
    "UnfoldTensor": _unfold,
    "CDist": _distances,
}
"""Op -> draws a case of it that ONNX Runtime runs on a CPU."""

REFERENCE = ("GridSample", "Unique")
"""Those that ONNX's own operator is for, which runs as it is."""
