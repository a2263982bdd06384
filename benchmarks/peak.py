"""The machine's int8 peak: operations a second of a large u8 x s8 matmul of oneDNN, through fqfuse's own binding."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import numpy as np

__all__ = ["SHAPES", "measure_peak"]

# (M, K, N) with M * N * K large against the traffic; which is best depends on the caches, so the best one counts.
SHAPES = ((1024, 1024, 1024), (2048, 2048, 2048), (784, 4096, 1024), (3136, 2304, 256))


def measure_peak(threads: int, seconds: float = 1.0) -> dict[str, Any]:
    """Return ``operations_per_second`` (two a multiply-accumulate) of the best of ``SHAPES``, and every shape's.

    Each shape runs for ``seconds``. Whatever the binding raises, among others BackendUnavailable, goes through.
    """
    onednn: Any = import_module("fqfuse.onednn")
    library = onednn.load()
    library.set_threads(threads)
    engine = onednn.Engine(library)
    rates = {"x".join(map(str, shape)): _rate(onednn, engine, shape, seconds) for shape in SHAPES}
    return {"operations_per_second": max(rates.values()), "shapes": rates, "library": str(onednn.version())}


def _rate(onednn: Any, engine: Any, shape: tuple[int, int, int], seconds: float) -> float:
    """Best rate of one shape within ``seconds``: the peak is what the machine can do, so the minimum time counts."""
    rows, inner, columns = shape
    rng = np.random.default_rng(0)
    library, data_type = engine.library, onednn.DataType
    descs = [
        onednn.MemoryDesc.with_strides(library, (rows, inner), data_type.u8),
        onednn.MemoryDesc.any(library, (inner, columns), data_type.s8),
        onednn.MemoryDesc.with_strides(library, (rows, columns), data_type.s32),
    ]
    desc = onednn.matmul(engine, descs[0], descs[1], None, descs[2])
    weights = onednn.Memory.allocate(engine, desc.weights_md())
    plain = onednn.Memory.wrap(engine, rng.integers(-127, 128, (inner, columns), np.int8))
    stream = onednn.Stream(engine)
    packing = onednn.Primitive(onednn.reorder(engine, plain.desc, weights.desc))
    packing.execute(stream, onednn.ExecArgs(packing.desc, {onednn.Arg.SRC: plain, onednn.Arg.DST: weights}))
    arguments = onednn.ExecArgs(
        desc,
        {
            onednn.Arg.SRC: onednn.Memory.wrap(engine, rng.integers(0, 256, (rows, inner), np.uint8)),
            onednn.Arg.WEIGHTS: weights,
            onednn.Arg.DST: onednn.Memory.allocate(engine, desc.dst_md()),
            onednn.Arg.SCRATCHPAD: onednn.Memory.allocate(engine, desc.scratchpad_md),
        },
    )
    primitive = onednn.Primitive(desc)
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        primitive.execute(stream, arguments)
        best = min(best, time.perf_counter() - started)
    return 2.0 * rows * inner * columns / best
