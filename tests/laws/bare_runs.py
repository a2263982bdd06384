"""The law of implementations: of a product of codes each that no row of defects names gives the exact
result, in poisoned memory, twice, and writes nothing beside it. It knows nothing of lowerings.

    python -m laws.bare_runs FIRST COUNT [NAMES]

prints what breaks it, and how often each implementation ran. NAMES is a regular expression that the
implementation's name must contain.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from laws.bare_products import A, Product, draw
from support.binding_library import no_primitive_cache

from fqfuse.aligned import aligned_bytes
from fqfuse.onednn.capi import OneDnnError
from fqfuse.onednn.defects import defect_of
from fqfuse.onednn.enums import Arg
from fqfuse.onednn.layouts import relaid, row_major
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.loading import load
from fqfuse.onednn.memory import Memory, MemoryDesc, data_type_of
from fqfuse.onednn.primitive import ExecArgs, Primitive, pack, run_once
from fqfuse.onednn.primitive_desc import PrimitiveDesc, describe
from fqfuse.onednn.saturation import may_saturate
from fqfuse.onednn.workers import in_new_thread

POISONS = (0x7F, 0xFF)
"""As f32: 3.4e38 and NaN; as codes 127 and -1."""
_GUARD = 4096
TRACED = "FQFUSE_TEST_TRACE"
"""Where it is set, what runs is printed before it does: a process may end in it."""


@dataclass
class Scan:
    """Runs products.

    Attributes:
        engine, stream: where.
        names: what the name of an implementation must contain.
        ran: how often each did.
    """

    engine: Engine
    stream: Stream
    names: str = ""
    ran: Counter[str] = field(default_factory=Counter)

    def broken(self, seed: int) -> list[str]:
        """What breaks the law."""
        product, found = draw(seed), list[str]()
        with no_primitive_cache(self.engine.library):
            try:
                desc = product.describe(self.engine)
            except OneDnnError:
                return []
            more = True
            while more:
                if self._counts(desc):
                    # Where code is not generated, the thread keeps the failure: what else it makes or runs may
                    # lack code, also such as the library makes once for all.
                    found += in_new_thread(partial(self._complaints, desc, product, seed))
                more = desc.next_impl()
        return found

    def _counts(self, desc: PrimitiveDesc) -> bool:
        named = re.search(self.names, desc.impl_info) is not None
        return (
            named and not desc.is_reference and defect_of(desc) is None and not may_saturate(desc)
        )

    def _complaints(self, desc: PrimitiveDesc, product: Product, seed: int) -> list[str]:
        name, want = desc.impl_info, product.want
        self.engine.library.set_threads(1 + seed % 2)
        if TRACED in os.environ:
            print(f"try {seed} {name}", flush=True)
        start = None if product.start is None else self._start(desc, product.start)
        if product.start is not None and start is None:
            return []
        told = f"{name} seed {seed} {product}"
        try:
            primitive = Primitive(desc)
            results = [self._run(primitive, product, start, byte) for byte in POISONS]
        except OneDnnError as error:  # it is not made, or nothing packs what it wants
            self.ran[f"{name}, refused late: {error.status.name}"] += 1
            return []
        self.ran[name] += 1
        for result, beside in results:
            if beside:
                return [f"{told}\n    bytes beside the result are overwritten"]
            wrong = result != want
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                where = f"at {at} {result[at]} and not {want[at]}"
                return [f"{told}\n    {wrong.sum()} wrong of {list(want.shape)}, {where}"]
        return []

    def _start(self, desc: PrimitiveDesc, start: A) -> A | None:
        """What a sum finds, as the destination lies; None where nothing of its type does so."""
        wanted, kind = desc.dst_md(), data_type_of(start.dtype)
        like = wanted if kind == wanted.dtype else relaid(wanted, wanted.dims, kind)
        return None if like is None else self._packed(start, like)

    def _packed(self, array: A, wanted: MemoryDesc) -> A:
        memory = Memory.allocate(self.engine, wanted)
        pack(self.stream, array, MemoryDesc.like(self.engine.library, array), memory)
        assert memory.data is not None
        return memory.data

    def _run(
        self, primitive: Primitive, product: Product, start: A | None, byte: int
    ) -> tuple[A, bool]:
        """The result, and whether bytes beside it were overwritten."""
        desc = primitive.desc
        given = {Arg.SRC: product.src, Arg.WEIGHTS: product.weights, **product.arrays}
        memories = {arg: self._memory(array, desc, arg, byte) for arg, array in given.items()}
        wanted = desc.dst_md()
        room = np.full(wanted.size + 2 * _GUARD + 64, byte, np.uint8)
        room = room[-room.ctypes.data % 64 :]
        inside = room[_GUARD : _GUARD + wanted.size]
        if start is not None:
            inside[...] = start[: wanted.size]
        memories[Arg.DST] = dst = Memory(self.engine, wanted, inside)
        if desc.scratchpad_size:
            scratch = aligned_bytes(desc.scratchpad_size)
            scratch[...] = byte
            memories[Arg.SCRATCHPAD] = Memory(self.engine, desc.scratchpad_md, scratch)
        primitive.execute(self.stream, ExecArgs(desc, memories))
        around = (room[:_GUARD], room[_GUARD + wanted.size :])
        beside = any(bool((part != byte).any()) for part in around)
        if wanted.is_plain:
            return dst.view().copy(), beside
        return self._straight(dst), beside

    def _straight(self, memory: Memory) -> A:
        """A result that lies in blocks, row-major."""
        library = self.engine.library
        plain = Memory.allocate(
            self.engine, row_major(library, memory.desc.dims, memory.desc.dtype)
        )
        desc = describe(self.engine, "reorder", memory.desc, plain.desc)
        run_once(self.stream, desc, {Arg.SRC: memory, Arg.DST: plain})
        return plain.view().copy()

    def _memory(self, array: A, desc: PrimitiveDesc, arg: int, byte: int) -> Memory:
        """An argument in the layout that is wanted, with poison behind it."""
        straight = np.ascontiguousarray(array)
        given, wanted = MemoryDesc.like(self.engine.library, straight), desc.exec_arg_md(arg)
        if arg & (Arg.ATTR_ZERO_POINTS | Arg.ATTR_SCALES) or not wanted.dims:
            return Memory(self.engine, given, straight)
        packed = self._packed(straight, wanted)
        room = np.full(packed.size + _GUARD + 64, byte, np.uint8)
        room = room[-room.ctypes.data % 64 :]
        room[: packed.size] = packed
        return Memory(self.engine, wanted, room[: packed.size])


def main() -> None:
    """As the module says."""
    first, count, names = int(sys.argv[1]), int(sys.argv[2]), "".join(sys.argv[3:4])
    library = load()
    engine = Engine(library)
    scan = Scan(engine, Stream(engine), names)
    for seed in range(first, first + count):
        for text in scan.broken(seed):
            print(text, flush=True)
    for name, ran in sorted(scan.ran.items()):
        print(f"{ran:6} {name}")
    print(f"{count} products of {library.version}")


if __name__ == "__main__":
    main()
