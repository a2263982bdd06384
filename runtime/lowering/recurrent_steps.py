"""The steps of a DynamicQuantizeLSTM layer, in one of two ways: by a kernel of our own that takes
all of them, or, where the CPU lacks its instructions, by the library's product and NumPy at each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...ir.ops.recurrent import DYNAMIC
from ...onednn.kernels import Kernels
from ...onednn.library import Library, Stream
from ...onednn.recurrent_kernel import CONSTANTS, LANES
from ...plan.types import Step
from .binding import Binder, need
from .recurrent_weights import F32, aligned_zeros, biases, by_blocks, product, weights

_GATES = 4

# of a number NumPy would make an array at each call
_ONE, _CODES = np.ones((), np.float32), np.full((), 255, np.float32)

_ALONE = 1 << 22
"""Multiplications of one step up to which a thread alone is as fast as several, which have to meet
behind each product: twice a step, and a busy machine keeps them waiting.
"""


MOST_CODES = (2**31 - 1) // (255 * 128)
"""So many products of codes have a sum of 31 bits."""


@dataclass(frozen=True)
class LayerSize:
    """The sizes of a layer.

    Attributes:
        steps, batch, hidden: of each direction.
        backwards: for each direction whether it goes backwards.
    """

    steps: int
    batch: int
    hidden: int
    backwards: tuple[bool, ...]

    @property
    def alone(self) -> bool:
        """True where a step of a direction is too little for several threads."""
        return self.batch * self.hidden * _GATES * self.hidden <= _ALONE

    @property
    def fits_kernel(self) -> bool:
        """True where the kernel's sums have 31 bits."""
        return self.hidden <= MOST_CODES

    def suits_kernel(self, threads: int) -> bool:
        """True where the library would not use more threads on a step than the kernel on the
        layer.
        """
        return (self.alone or len(self.backwards) >= threads) and self.fits_kernel


class Room(Protocol):
    """The memory of one run.

    Attributes:
        h, c: the states [D, N, H], which `run` changes from the first to the last.
    """

    h: F32
    c: F32

    def run(self, y: F32) -> None:
        """Takes all steps, into y [T, D, N, H], C-contiguous."""
        ...


class Steps(Protocol):
    """The steps of a layer, bound.

    Attributes:
        implementation: what computes them, for the placement.
    """

    implementation: str

    def room(self, stream: Stream, pre: F32) -> Room:
        """Memory for one run.

        Args:
            stream: for the library.
            pre: products of the input, [T, N, D, 4H], C-contiguous.
        """
        ...


# -- all steps in one call -------------------------------------------------------------------------


class KernelSteps:
    """By the kernel: a thread takes a whole direction."""

    def __init__(self, binder: Binder, step: Step, size: LayerSize, kernel: Kernels) -> None:
        self.size, self.kernel = size, kernel
        self.threads = min(binder.threads, len(size.backwards))
        self.implementation = f"{DYNAMIC} by {kernel.level}"
        directions, rows = len(size.backwards), _GATES * size.hidden
        self.weights, self.sums, self.scales = packed_by_blocks(binder, step, "r", directions)
        bias = biases(binder, step)
        self.bias = by_blocks(np.zeros((directions, rows), np.float32) if bias is None else bias)

    def room(self, stream: Stream, pre: F32) -> Room:  # noqa: ARG002
        """See `Steps`."""
        return _KernelRoom(self, pre)


class _KernelRoom:
    def __init__(self, steps: KernelSteps, pre: F32) -> None:
        size = steps.size
        directions, blocks = len(size.backwards), -(-size.hidden // LANES)
        rows, width = (directions, size.batch), blocks * LANES
        h, c = (aligned_zeros((*rows, width), np.float32) for _ in range(2))
        codes = aligned_zeros((*rows, width), np.uint8)
        products = aligned_zeros((*rows, _GATES * width), np.int32)
        self.h, self.c = h[..., : size.hidden], c[..., : size.hidden]
        self._shape = (size.steps, *rows, size.hidden)
        wanted = (size.steps, size.batch, directions, _GATES * size.hidden)
        if pre.shape != wanted or not pre.flags.c_contiguous or pre.dtype != np.float32:
            raise ValueError(f"products of the input must be f32{list(wanted)}, row-major")
        arrays: dict[str, NDArray[Any]] = {
            "weights": steps.weights,
            "sums": steps.sums,
            "scales": steps.scales,
            "bias": steps.bias,
            "constants": CONSTANTS,
            "pre": pre,
            "h": h,
            "c": c,
            "codes": codes,
            "products": products,
        }
        self._work = steps.kernel.work(
            "lstm_steps",
            **{name: array.ctypes.data for name, array in arrays.items()},
            steps=size.steps,
            directions=directions,
            batch=size.batch,
            hidden=size.hidden,
            blocks=blocks,
            backwards=sum(1 << d for d, back in enumerate(size.backwards) if back),
        )
        self._call = steps.kernel.call("lstm_steps", self._work, steps.threads, arrays)

    def run(self, y: F32) -> None:
        """See `Room`."""
        if y.shape != self._shape or not y.flags.c_contiguous or y.dtype != np.float32:
            raise ValueError(f"results must be f32{list(self._shape)}, row-major")
        self._work.y = y.ctypes.data
        self._call()


def packed_by_blocks(
    binder: Binder, step: Step, role: str, directions: int
) -> tuple[NDArray[np.int8], NDArray[np.int32], F32]:
    """The weights `w` or `r` of all directions as `packed_codes`, and by blocks their sums over all
    inputs, and their scales.
    """
    each = [weights(binder, step, role, d) for d in range(directions)]
    rows = each[0][0].shape[1]

    def codes() -> NDArray[np.int8]:
        return np.stack([packed_codes(found) for found, _ in each])

    packed = binder.constants.arranged(need(step, role), f"{DYNAMIC}: {role}", codes)
    sums = by_blocks(np.stack([c.sum(0, dtype=np.int32) for c, _ in each]))
    return packed, sums, by_blocks(np.stack([np.broadcast_to(s, rows) for _, s in each]))


def packed_codes(codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """Codes [K, 4H] as the kernel reads them, [blocks, K'/4, 4 gates, 16, 4]."""
    inputs, hidden = codes.shape[0], codes.shape[1] // _GATES
    deep, width = (-(-size // LANES) * LANES for size in (inputs, hidden))
    whole = np.zeros((deep, _GATES, width), np.int8)
    whole[:inputs, :, :hidden] = codes.reshape(inputs, _GATES, hidden)
    parts = whole.reshape(deep // 4, 4, _GATES, width // LANES, LANES)
    return np.ascontiguousarray(parts.transpose(3, 0, 2, 4, 1))


# -- step by step ----------------------------------------------------------------------------------


class LibrarySteps:
    """By the library's product, and NumPy behind it: all directions take their steps together."""

    def __init__(self, binder: Binder, step: Step, size: LayerSize) -> None:
        self.size, self._library = size, binder.library
        with self.threads():
            self.products = [
                product(binder, step, "r", (d,), size.batch) for d in range(len(size.backwards))
            ]
        self.implementation = self.products[0].implementation
        bias = biases(binder, step)
        self.bias = np.zeros((1, 1), np.float32) if bias is None else bias

    def room(self, stream: Stream, pre: F32) -> Room:
        """See `Steps`."""
        return _LibraryRoom(self, stream, pre)

    @contextmanager
    def threads(self) -> Iterator[None]:
        """As many OpenMP threads as the products of single steps are made for, and run by."""
        library: Library = self._library
        before = library.max_threads()
        library.set_threads(1 if self.size.alone else before)
        try:
            yield
        finally:
            library.set_threads(before)


class _LibraryRoom:
    def __init__(self, steps: LibrarySteps, stream: Stream, pre: F32) -> None:
        size = steps.size
        directions, hidden = len(size.backwards), size.hidden
        self._bound, self._pre = steps, pre.transpose(2, 0, 1, 3)
        # in the order in which each direction takes its steps
        self._gates = np.empty((directions, size.steps, size.batch, _GATES * hidden), np.float32)
        self.h = np.empty((directions, size.batch, hidden), np.float32)
        self.c = np.empty_like(self.h)
        self._t = np.empty_like(self.h)
        self._codes = np.empty(self.h.shape, np.uint8)
        self._scale = np.ones((directions, 1), np.float32)
        self._zero = np.zeros((directions, 1), np.int32)
        self._steps = []
        for s in range(size.steps):
            gates = self._gates[:, s]
            calls = [
                found.call(stream, self._codes[d], gates[d], self._scale[d], self._zero[d])
                for d, found in enumerate(steps.products)
            ]
            parts = [gates[..., at * hidden : (at + 1) * hidden] for at in range(_GATES)]
            self._steps.append((calls, gates[..., : 3 * hidden], *parts))

    def run(self, y: F32) -> None:
        """See `Room`."""
        bound = self._bound
        for gates, pre, bias, backwards in zip(
            self._gates,
            self._pre,
            np.broadcast_to(bound.bias, (len(self._gates), bound.bias.shape[1])),
            bound.size.backwards,
            strict=True,
        ):
            np.add(pre[::-1] if backwards else pre, bias, gates)
        with bound.threads():
            self._run_steps(y)

    def _run_steps(self, y: F32) -> None:
        size, state, cell, t = self._bound.size, self.h, self.c, self._t
        order = [
            range(size.steps - 1, -1, -1) if backwards else range(size.steps)
            for backwards in size.backwards
        ]
        for (calls, sigmoids, i, o, f, g), *places in zip(self._steps, *order, strict=True):
            self._quantize_state()
            for call in calls:
                call()
            np.negative(sigmoids, sigmoids)
            np.exp(sigmoids, sigmoids)
            np.add(sigmoids, _ONE, sigmoids)
            np.reciprocal(sigmoids, sigmoids)
            np.tanh(g, g)
            np.multiply(f, cell, cell)
            np.multiply(i, g, t)
            np.add(cell, t, cell)
            np.tanh(cell, t)
            np.multiply(o, t, state)
            for d, place in enumerate(places):
                y[place, d] = state[d]

    def _quantize_state(self) -> None:
        """Codes, scale and zero point of the hidden state, of each direction by itself."""
        h, t, scale = self.h, self._t, self._scale
        flat = h.reshape(h.shape[0], -1)
        low = np.minimum.reduce(flat, axis=1, initial=0, keepdims=True)
        high = np.maximum.reduce(flat, axis=1, initial=0, keepdims=True)
        np.subtract(high, low, high)
        np.divide(high, _CODES, scale)
        if not scale.all():
            scale[scale == 0] = 1
        zero = np.rint(-low / scale)
        self._zero[...] = zero
        np.divide(h, scale[..., None], t)
        np.rint(t, t)
        np.add(t, zero[..., None], t)
        np.minimum(t, _CODES, out=t)
        self._codes[...] = t
