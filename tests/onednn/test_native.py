"""Our functions in C: which are called on which CPU, that all levels give the same bytes, and that an
installation without them gives the same numbers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.guarded import Guarded
from support.kernel_models import dynamic_lstm, lookup, product
from support.packed_models import Scheme

from fqfuse.onednn import native
from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.kernels import Kernels
from fqfuse.onednn.library import Library
from fqfuse.onednn.native import LEVELS, functions
from fqfuse.onednn.recurrent_kernel import CONSTANTS

EVERYTHING = CpuIsa.avx512_core_amx
NAMES = (
    *("average_kernel", "block_kernels_4", "block_kernels_8", "call_loop"),
    *("coded_kernels_4", "coded_kernels_8", "lookup_kernel", "lstm_kernel"),
    *("range_kernel", "recurrent_kernel"),
)
pytestmark = pytest.mark.usefixtures("in_c")


def test_all_kernels_are_there() -> None:
    assert sorted(native._compiled()) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_cpu_gets_what_it_can_run(name: str) -> None:
    """The largest level of each function, and none beyond the instruction sets that are allowed."""
    for level, needs in LEVELS.items():
        found = functions(name, needs)
        assert all(LEVELS[each.level] & needs == LEVELS[each.level] for each in found.values())
        largest = [
            own
            for own in native._compiled()[name]
            if own in LEVELS and LEVELS[own] & needs == LEVELS[own]
        ][-1:]
        assert {each.level for each in found.values()} >= set(largest), level
    assert functions(name, EVERYTHING)


def test_of_each_level_functions_take_the_same_work() -> None:
    for levels in native._compiled().values():
        members: dict[str, tuple[str, ...]] = {}
        for each in levels.values():
            for name, function in each.items():
                assert members.setdefault(name, function.members) == function.members


def test_a_work_takes_its_members_and_no_other_name() -> None:
    found = Kernels(functions("recurrent_kernel", EVERYTHING), None)
    work: Any = found.work("quantize", x=3, count=1 << 40)
    assert (work.x, work.count, work.codes) == (3, 1 << 40, 0)
    with pytest.raises(AttributeError):
        found.work("quantize", weights=1)
    with pytest.raises(AttributeError):
        work.weights = 1
    with pytest.raises(TypeError, match="lstm_steps takes another work"):
        found.call("lstm_steps", work)


# -- the same bytes on every level -----------------------------------------------------------------


def drawn(work: Any, **arrays: np.ndarray) -> dict[str, Guarded]:
    """Arrays that end where nobody may touch, in a work."""
    held = {name: Guarded(array) for name, array in arrays.items()}
    for name, array in held.items():
        setattr(work, name, array.array.ctypes.data)
    return held


def a_product(kernel: Kernels, name: str, bits: int, many: int) -> np.ndarray:
    rng, (blocks, block, rows) = np.random.default_rng(many), (5, 64, 37)
    work: Any = kernel.work(name, blocks=blocks, block=block, rows=rows, many=many, ld=rows)
    work.stride = blocks * block * bits // 8
    width = 48 if name == "multiply_row" else rows
    held = drawn(
        work,
        codes=rng.integers(0, 256, width * blocks * block * bits // 8).astype(np.uint8),
        scales=rng.normal(size=width * blocks).astype(np.float32),
        zeros=rng.integers(0, 1 << bits, width * blocks + 3).astype(np.uint8),
        x=rng.normal(size=(many, blocks * block)).astype(np.float32),
        out=np.zeros((many, rows), np.float32),
        panels=np.zeros(64 * 64, np.float32),
    )
    kernel.call(name, work, held=held)()
    return held["out"].array


def a_layer(kernel: Kernels, function: str) -> np.ndarray:
    """All steps of an f32 LSTM, of few and of large numbers."""
    rng, (steps, directions, hidden, inputs) = np.random.default_rng(5), (19, 2, 37, 21)
    blocks, batch = -(-hidden // 16), 1 if function == "lstm_sequence" else 3
    row, state = directions * 4 * hidden, (directions, batch, hidden)
    work: Any = kernel.work(function, steps=steps, directions=directions, batch=batch)
    work.hidden, work.blocks, work.backwards, work.inputs = hidden, blocks, 2, inputs
    work.pre_step, work.pre_row = batch * row, row
    work.y_step, work.y_row = batch * directions * hidden, directions * hidden

    def some(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) * 10.0 ** rng.integers(-6, 3, shape)).astype(np.float32)

    held = drawn(
        work,
        weights=some(directions, blocks, hidden, 64),
        constants=CONSTANTS,
        first_h=some(*state),
        first_c=some(*state),
        c=some(*state),
        pre=some(steps, batch, row),
        x=some(steps, inputs),
        of_x=some(directions, blocks, 2, inputs, 32),
        bias=some(directions, blocks, 64),
        room=some(directions, 2, blocks, 512),
        y=some(steps, batch, directions, hidden),
    )
    kernel.call(function, work, held=held)()
    return np.concatenate([held["y"].array.reshape(-1), held["c"].array.reshape(-1)])


RESULTS: dict[str, tuple[str, Callable[[Kernels], np.ndarray]]] = {
    **{
        f"{name} of {bits} bits, {many} rows": (
            f"block_kernels_{bits}",
            lambda kernel, name=name, bits=bits, many=many: a_product(kernel, name, bits, many),
        )
        for bits in (4, 8)
        for name in ("multiply_row", "multiply_rows", "multiply_columns")
        for many in (1, 7)
    },
    **{
        name: ("lstm_kernel", lambda kernel, name=name: a_layer(kernel, name))
        for name in ("lstm_steps", "lstm_sequence")
    },
}
"""What is called -> its kernel, and a result whose sums are rounded: codes and states of the others
are held against NumPy bit by bit at every level, in the tests of each kernel.
"""


@pytest.mark.each_case
@pytest.mark.parametrize("name", RESULTS)
def test_all_levels_give_the_same_bytes(library: Library, name: str) -> None:
    kernel, result = RESULTS[name]
    wanted = None
    for level, each in native._compiled()[kernel].items():
        needs = LEVELS.get(level, CpuIsa.default)
        if library.effective_isa() & needs != needs:
            continue
        found = result(Kernels(each, None)).tobytes()
        assert wanted in (None, found), level
        wanted = found


# -- without them ----------------------------------------------------------------------------------

RUN = """
import importlib, sys
import numpy as np
if sys.argv[1] == "without":
    sys.modules["fqfuse.onednn._native"] = None
import fqfuse
from fqfuse.models.digits import digits_model_path, digits_test_set
from fqfuse.onednn.native import missing
session = fqfuse.InferenceSession(digits_model_path("qdq"), "onednn")
(found,) = session.run(None, {"image": digits_test_set()[0]})
print(bool(missing()), found.tobytes().hex())
"""


def test_without_the_extension_results_are_the_same(library: Library) -> None:
    del library
    ran = [
        subprocess.run(
            [sys.executable, "-c", RUN, how], capture_output=True, text=True, check=True
        ).stdout.split()
        for how in ("with", "without")
    ]
    assert [without for without, _ in ran] == ["False", "True"]
    assert ran[0][1] == ran[1][1]


def test_the_library_s_limit_is_ours(library: Library) -> None:
    """ONEDNN_MAX_CPU_ISA bounds the functions in C, too."""
    if library.effective_isa() & CpuIsa.avx512_core != CpuIsa.avx512_core:
        pytest.skip("a CPU without AVX-512")
    code = (
        "from fqfuse.onednn.loading import load\n"
        "from fqfuse.onednn.kernels import kernels\n"
        "print(kernels(load(), 'coded_kernels_4').level)"
    )
    for limit, level in (("SSE41", "plain C"), ("AVX2", "avx2"), ("AVX512_CORE", "avx512_core")):
        environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": limit}
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.strip() == level


LIMITED = """
import hashlib, sys
from pathlib import Path
import numpy as np
import fqfuse
for path in sorted(Path(sys.argv[1]).glob("*.onnx")):
    plan = fqfuse.compile(path, dynamic="matmul" if path.stem.startswith("codes") else None)
    session = fqfuse.InferenceSession(plan, "auto", 2)  # exact
    results = session.run(None, dict(np.load(path.with_suffix(".npz"))))
    print(hashlib.sha256(b"".join(each.tobytes() for each in results)).hexdigest(), end=" ")
    print(session.placement()[0].implementation or "none")
"""


@pytest.mark.parametrize("limit", ["AVX2", "AVX512_CORE"])
def test_models_give_the_same_bytes_without_vnni(
    library: Library, limit: str, tmp_path: Path
) -> None:
    """Weights of all codes, with which pairs of products saturate 16 bits."""
    if not library.effective_isa().has_vnni:
        pytest.skip("a CPU without VNNI")
    cases = {"lstm": dynamic_lstm(), "lookup": lookup()}
    for bits in (4, 8):
        for rows in (1, 40):
            scheme = Scheme("nbits", bits, 32)
            cases[f"codes {bits} {rows}"] = cases[f"rows {bits} {rows}"] = product(rows, scheme)
    for name, (proto, feeds) in cases.items():
        onnx.save(proto, tmp_path / f"{name}.onnx")
        np.savez(tmp_path / f"{name}.npz", **feeds)
    told = []
    for environment in ({}, {"ONEDNN_MAX_CPU_ISA": limit}):
        ran = subprocess.run(
            [sys.executable, "-c", LIMITED, str(tmp_path)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append([line.split(" ", 1) for line in ran.stdout.splitlines()])
    assert len(told[0]) == len(cases)
    assert [found for found, _ in told[0]] == [found for found, _ in told[1]]
    by = {name: line[1] for name, line in zip(sorted(cases), told[1], strict=True)}
    del by["lookup"]  # a call between the primitives, which has no name
    assert all(f"by {limit.lower()}" in name for name in by.values()), by


def test_the_extension_is_loaded_when_it_is_needed() -> None:
    code = "import sys, fqfuse, fqfuse.onednn.kernels\nassert 'fqfuse.onednn._native' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
