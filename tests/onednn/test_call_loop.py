"""Calls of C functions joined into one: they are made in their order, until one fails, and which one
that was is known.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from support.executor_plans import F32, U8, Builder, scales

from fqfuse.onednn import call_loop
from fqfuse.onednn.call_loop import CCall, Tried, joined
from fqfuse.onednn.capi import OneDnnError
from fqfuse.onednn.coded_kernels import coded_kernels
from fqfuse.onednn.enums import DataType
from fqfuse.onednn.kernels import kernels
from fqfuse.onednn.layouts import row_major
from fqfuse.onednn.library import Library
from fqfuse.onednn.lookup_kernel import lookup_kernel
from fqfuse.onednn.memory import Memory
from fqfuse.onednn.native import missing
from fqfuse.plan.attributes import PrimitiveAttr
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.lowering.rows import RowsProduct
from fqfuse.runtime.lowering.runs import Run

KINDS = (ctypes.c_int64,) * 4
LARGE = 2**63 - 1


class Recorder:
    """Functions that note what they were called with, and return the status that the first word
    stands for in `statuses`.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[int, ...]] = []
        self.statuses: dict[int, int] = {}
        self.function = ctypes.CFUNCTYPE(ctypes.c_int, *KINDS)(self._note)

    def _note(self, *words: int) -> int:
        self.seen.append(words)
        return self.statuses.get(words[0], 0)

    def in_c(self, *words: int) -> CCall:
        return CCall(self.function, *words)

    def in_python(self, *words: int) -> Callable[[], int]:
        return lambda: self._note(*words)


@pytest.fixture
def mixed() -> tuple[Recorder, list[Callable[[], int]]]:
    """Nine calls: stretches of three, one and two in C, and three alone."""
    recorder = Recorder()
    kinds = "cccpcpccp"
    calls = [
        (recorder.in_c if kind == "c" else recorder.in_python)(place, -place, LARGE, -LARGE - 1)
        for place, kind in enumerate(kinds)
    ]
    return recorder, calls


def run(stretches: list[call_loop.Stretch]) -> tuple[int, int] | None:
    """Place and status of the call that failed."""
    for stretch in stretches:
        if status := stretch.call():
            return stretch.failed(), status
    return None


@pytest.mark.parametrize("compiled", [True, False])
def test_all_are_made_in_order_with_their_words(library, mixed, compiled, monkeypatch) -> None:
    recorder, calls = mixed
    if not compiled:
        monkeypatch.setattr(call_loop, "kernels", lambda *_: None)
    elif missing():
        pytest.skip(f"no functions in C: {missing()}")
    stretches = joined(library, calls)
    assert len(stretches) == (6 if compiled else 9)
    for _ in range(2):
        recorder.seen.clear()
        assert run(stretches) is None
        assert recorder.seen == [(place, -place, LARGE, -LARGE - 1) for place in range(9)]


@pytest.mark.parametrize("place", range(9))
def test_what_fails_ends_it_and_is_named(library, mixed, place) -> None:
    """And the next run begins from the first call on."""
    recorder, calls = mixed
    stretches = joined(library, calls)
    recorder.statuses[place] = -3
    assert run(stretches) == (place, -3)
    assert [words[0] for words in recorder.seen] == list(range(place + 1))
    recorder.statuses.clear()
    recorder.seen.clear()
    assert run(stretches) is None
    assert len(recorder.seen) == 9


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("place", range(4))
def test_what_is_tried_in_vain_python_does(library, compiled, place, monkeypatch) -> None:
    """The calls behind it go on; where Python fails, too, it ends there and is named."""
    if not compiled:
        monkeypatch.setattr(call_loop, "kernels", lambda *_: None)
    recorder, others = Recorder(), list[int]()
    answers = dict.fromkeys(range(4), 0)

    def tried(at: int) -> Tried:
        return Tried.of(recorder.in_c(at, 0, 0, 0), lambda: others.append(at) or answers[at])

    stretches = joined(library, [*map(tried, range(4)), recorder.in_c(4, 0, 0, 0)])
    for failing in ({place}, {place, 3}, set()):
        recorder.seen.clear()
        others.clear()
        recorder.statuses = dict.fromkeys(failing, 1)
        assert run(stretches) is None
        assert [words[0] for words in recorder.seen] == list(range(5))
        assert others == sorted(failing)
    recorder.statuses, answers[place] = {place: 1}, -2
    assert run(stretches) == (place, -2)


def test_nothing_to_join(library: Library) -> None:
    assert joined(library, []) == []


@pytest.mark.parametrize("compiled", [True, False])
def test_memories_point_where_they_are_told(library, engine, compiled, monkeypatch) -> None:
    if not compiled:
        monkeypatch.setattr(call_loop, "kernels", lambda *_: None)
    desc = row_major(library, (3,), DataType.f32)
    memories = [Memory(engine, desc) for _ in range(4)]
    pointers = call_loop.Pointers(library, memories)
    for addresses in ([64, 128, 192, 256], [256, 64, 64, 0]):
        pointers.point(addresses)
        assert [_handle(memory) for memory in memories] == addresses
    call_loop.Pointers(library, []).point([])


def _handle(memory: Memory) -> int:
    found = ctypes.c_void_p()
    get = ctypes.CDLL(memory.library.path).dnnl_memory_get_data_handle
    assert not get(ctypes.c_void_p(memory.pointer), ctypes.byref(found))
    return found.value or 0


@pytest.mark.parametrize("compiled", [True, False])
def test_a_memory_that_is_refused_is_named(library, engine, compiled, monkeypatch) -> None:
    if not compiled:
        monkeypatch.setattr(call_loop, "kernels", lambda *_: None)
    memory = Memory(engine, row_major(library, (3,), DataType.f32))
    none = Memory(engine, row_major(library, (5,), DataType.f32))
    given, none.pointer = none.pointer, 0
    try:
        pointers = call_loop.Pointers(library, [memory, none])
        with pytest.raises(OneDnnError, match=r"f32\[5\]"):
            pointers.point([64, 64])
    finally:
        none.pointer = given


def two_products() -> Plan:
    b = Builder()
    b.input("x", (3, 4), F32)
    w = b.constant("w", np.eye(4, dtype=np.float32))
    once = b.step("matmul", "MatMul", {"src": "x", "weights": w}, "once", F32, (3, 4))
    return b.plan(b.step("matmul", "MatMul", {"src": once, "weights": w}, "y", F32, (3, 4)))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """The runs that are made."""
    found = []
    make = Run.__init__

    def keep(self: Run, *given: object) -> None:
        make(self, *given)
        found.append(self)

    monkeypatch.setattr(Run, "__init__", keep)
    return found


@pytest.mark.of_3_2("it counts calls of C functions in one run, and on SYCL each is waited for")
@pytest.mark.usefixtures("library", "in_c")
def test_a_run_names_the_primitive_that_failed(taken: list[Run]) -> None:
    """Of a program whose primitives are one stretch."""
    executor = OneDnnExecutor(two_products(), threads=1)
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}
    np.testing.assert_array_equal(executor.run(feeds)[0], feeds["x"])
    (one,) = taken
    assert len(one._stretches) == 1
    count = len(one.calls)
    assert count >= 2
    for place in range(count):
        calls = list(one.calls)
        whole = list(calls[place].args)
        whole[0] = ctypes.c_void_p(None)  # no primitive: the library refuses, and runs nothing
        calls[place] = CCall(calls[place].func, *whole)
        one._stretches = joined(one._engine.library, calls)
        with pytest.raises(OneDnnError, match="executing matmul"):
            one.execute(feeds)
        assert one._stretches[0].failed() == place


def lookup_between_primitives() -> Plan:
    """Quantized, each code replaced by 255 less it, and decoded again."""
    b = Builder()
    codes = b.quantize(b.input("x", (1, 3, 5, 7), F32), "codes", scale=1.0)
    table = b.constant("table", np.arange(255, -1, -1, dtype=np.uint8))
    params = {"quant": None}
    found = b.step(
        "onnx.Lookup", "Lookup", {"x": codes, "table": table}, "found", U8, (1, 3, 5, 7), params
    )
    attr = PrimitiveAttr(scales(src=1.0))
    return b.plan(b.step("reorder", "Identity", {"src": found}, "y", F32, (1, 3, 5, 7), attr=attr))


@pytest.mark.of_3_2("it counts calls of C functions in one run, and on SYCL each is waited for")
def test_a_lookup_is_made_with_the_primitives_around_it(library: Library, taken: list[Run]) -> None:
    if lookup_kernel(library.effective_isa()) is None:
        pytest.skip(f"no functions in C: {missing()}")
    executor = OneDnnExecutor(lookup_between_primitives(), threads=1)
    for seed in range(3):
        x = np.random.default_rng(seed).integers(0, 256, (1, 3, 5, 7)).astype(np.float32)
        np.testing.assert_array_equal(executor.run({"x": x})[0], 255 - x)
    (one,) = taken
    assert len(one._stretches) == 1
    assert len(one.calls) >= 3


@pytest.mark.parametrize("threads", [1, 2])
def test_shared_work_begins_anew_in_each_call(library: Library, threads: int) -> None:
    """A row times packed weights: its functions in turn, in C, give what they give one by one."""
    found = coded_kernels(library, 4)
    if found is None or kernels(library, "call_loop") is None:
        pytest.skip(f"no functions in C: {missing()}")
    seen, size, rows, blocks = [], 128, 1, 4
    held = (np.arange(64 * size, dtype=np.uint8), np.ones(size * blocks, np.float32))
    scratch = np.zeros((4, size), np.int32)
    work = found.work(
        "quantize_rows",
        codes=held[0].ctypes.data,
        scales=held[1].ctypes.data,
        xcodes=scratch[0].ctypes.data,
        xscales=scratch[1].ctypes.data,
        xsums=scratch[2].ctypes.data,
        blocks=blocks,
        block=32,
        rows=size,
        ld=size,
        many=rows,
        size=size,
    )
    steps = [("quantize_rows", 1), ("multiply_row", threads)]
    product = RowsProduct(found, work, steps, (rows, size), held)
    sources = np.linspace(-3, 2, size, dtype=np.float32)[None]
    alive: list[object] = []
    in_c = product.in_c(library, sources, alive)
    assert in_c is not None
    for call in (lambda: product(sources), in_c, in_c):
        out = np.full((rows, size), np.nan, np.float32)
        work.out = out.ctypes.data
        assert not call()
        seen.append(out)
    assert np.isfinite(seen[0]).all()
    assert seen[0].any()
    np.testing.assert_array_equal(seen[1], seen[0])
    np.testing.assert_array_equal(seen[2], seen[0])
