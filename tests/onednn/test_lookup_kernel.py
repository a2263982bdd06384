"""The lookup kernel: it gives table[code] for every pair of codes and length, and touches nothing
else.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest
from support.executor_plans import S8, U8, Builder

from fqfuse.ir.types import DType
from fqfuse.onednn.library import Library
from fqfuse.onednn.lookup_kernel import Kernel, lookup_kernel
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering import host_calls
from fqfuse.runtime.lowering.host_calls import single_call


@pytest.fixture
def kernel(library: Library, level: str) -> Kernel:  # noqa: ARG001
    found = lookup_kernel(library.effective_isa())
    assert found is not None
    return found


def table_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, 256).astype(np.uint8)


@pytest.mark.parametrize("offset", [0, 1, 31])
def test_every_length_and_nothing_beyond(kernel: Kernel, offset: int) -> None:
    table = table_of(offset)
    codes = np.random.default_rng(1).integers(0, 256, 400).astype(np.uint8)
    for length in range(300):
        out = np.full(400, 7, np.uint8)
        kernel(out[offset:].ctypes.data, codes[3:].ctypes.data, length, table.ctypes.data)
        np.testing.assert_array_equal(out[offset : offset + length], table[codes[3 : 3 + length]])
        assert (out[:offset] == 7).all()
        assert (out[offset + length :] == 7).all()


@pytest.mark.parametrize("shift", [0, 1])
def test_every_pair_of_codes(kernel: Kernel, shift: int) -> None:
    codes = np.arange(65536, dtype=np.uint16).view(np.uint8)[shift:]
    for table in (
        table_of(5),
        np.arange(256, dtype=np.uint8),
        np.arange(256, dtype=np.uint8)[::-1].copy(),
    ):
        out = np.empty_like(codes)
        kernel(out.ctypes.data, codes.ctypes.data, codes.size, table.ctypes.data)
        np.testing.assert_array_equal(out, table[codes])


def test_in_place(kernel: Kernel) -> None:
    table, codes = table_of(6), np.arange(256, dtype=np.uint8)
    kernel(codes.ctypes.data, codes.ctypes.data, codes.size, table.ctypes.data)
    np.testing.assert_array_equal(codes, table)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 127])
def test_reads_and_writes_up_to_the_end_of_a_page(kernel: Kernel, length: int) -> None:
    """The page behind must not be touched: reading or writing it would end the process."""
    table, size = table_of(8), mmap.PAGESIZE
    pages = [mmap.mmap(-1, 2 * size) for _ in range(2)]
    starts = [ctypes.addressof(ctypes.c_char.from_buffer(page)) for page in pages]
    codes = np.random.default_rng(9).integers(0, 256, length).astype(np.uint8)
    pages[0][size - length : size] = codes.tobytes()
    protect = ctypes.CDLL(None).mprotect
    for start in starts:
        assert protect(ctypes.c_void_p(start + size), ctypes.c_size_t(size), 0) == 0
    kernel(starts[1] + size - length, starts[0] + size - length, length, table.ctypes.data)
    assert pages[1][size - length : size] == table[codes].tobytes()


def lookup(source: DType, target: DType, shape: tuple[int, ...]) -> Plan:
    b = Builder()
    b.input("x", shape, source)
    table = b.constant("table", table_of(11).view(target.numpy))
    return b.plan(
        b.step(
            "onnx.Lookup", "Lookup", {"x": "x", "table": table}, "y", target, shape, {"quant": None}
        )
    )


@pytest.mark.parametrize("source", [U8, S8])
@pytest.mark.parametrize("target", [U8, S8])
@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)])
@pytest.mark.parametrize("compiled", [False, True])
def test_both_ways_give_the_same_bytes_in_any_order(
    library: Library, source, target, axes: tuple[int, ...], compiled, monkeypatch
) -> None:
    """Source and result in the same order of memory, and in different ones."""
    shape = (2, 5, 7, 3)
    plan = lookup(source, target, shape)
    if not compiled:
        monkeypatch.setattr(host_calls, "lookup_kernel", lambda _: None)
    make = single_call(plan, plan.steps[0], plan.constants, library.effective_isa())
    assert make is not None
    x = np.random.default_rng(12).integers(0, 256, shape).astype(np.uint8).view(source.numpy)
    back = np.argsort(axes)
    wanted = plan.constants["table"][x.view(np.uint8)]
    for held in (
        x,
        np.ascontiguousarray(x.transpose(axes)).transpose(back),
        np.repeat(x, 2, axis=2)[:, :, ::2],
    ):
        out = np.zeros([shape[axis] for axis in axes], target.numpy).transpose(back)
        assert make(out)(held)
        np.testing.assert_array_equal(out, wanted)
