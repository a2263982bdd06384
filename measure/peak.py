"""The machine's int8 peak: operations a second of a large u8 x s8 matmul of oneDNN, through
fqfuse's own binding.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ..onednn.enums import Arg, DataType
from ..onednn.layouts import row_major
from ..onednn.library import Engine, Stream
from ..onednn.loading import load
from ..onednn.memory import Memory, MemoryDesc
from ..onednn.primitive import ExecArgs, Primitive
from ..onednn.primitive_desc import describe

# (M, K, N) with M * N * K large against the traffic; which is best depends on the caches, so the
# best one counts.
SHAPES = ((1024, 1024, 1024), (2048, 2048, 2048), (784, 4096, 1024), (3136, 2304, 256))


def measure_peak(threads: int, seconds: float = 1.0) -> dict[str, Any]:
    """Return ``operations_per_second`` (two a multiply-accumulate) of the best of ``SHAPES``, and
    every shape's.

    Each shape runs for ``seconds``. Whatever the binding raises, among others BackendUnavailable,
    goes through.
    """
    library = load()
    library.set_threads(threads)
    engine = Engine(library)
    rates = {"x".join(map(str, shape)): _rate(engine, shape, seconds) for shape in SHAPES}
    return {
        "operations_per_second": max(rates.values()),
        "shapes": rates,
        "library": str(library.version),
    }


def _rate(engine: Engine, shape: tuple[int, int, int], seconds: float) -> float:
    """Best rate of one shape within ``seconds``: the peak is what the machine can do, so the
    minimum time counts.
    """
    rows, inner, columns = shape
    rng = np.random.default_rng(0)
    library = engine.library
    descs = [
        row_major(library, (rows, inner), DataType.u8),
        MemoryDesc.any(library, (inner, columns), DataType.s8),
        row_major(library, (rows, columns), DataType.s32),
    ]
    desc = describe(engine, "matmul", descs[0], descs[1], None, descs[2])
    weights = Memory.allocate(engine, desc.weights_md())
    plain = Memory.wrap(engine, rng.integers(-127, 128, (inner, columns), np.int8))
    stream = Stream(engine)
    packing = Primitive(describe(engine, "reorder", plain.desc, weights.desc))
    packing.execute(stream, ExecArgs(packing.desc, {Arg.SRC: plain, Arg.DST: weights}))
    arguments = ExecArgs(
        desc,
        {
            Arg.SRC: Memory.wrap(engine, rng.integers(0, 256, (rows, inner), np.uint8)),
            Arg.WEIGHTS: weights,
            Arg.DST: Memory.allocate(engine, desc.dst_md()),
            Arg.SCRATCHPAD: Memory.allocate(engine, desc.scratchpad_md),
        },
    )
    primitive = Primitive(desc)
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        primitive.execute(stream, arguments)
        best = min(best, time.perf_counter() - started)
    return 2.0 * rows * inner * columns / best
