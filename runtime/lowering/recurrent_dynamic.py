"""Layers of DynamicQuantizeLSTM: the input is quantized and multiplied for all steps at once, by the
library's int8 product, or where that is not exact by a kernel of our own; the steps follow (`recurrent_steps.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...ir.ops import OPS
from ...ir.ops.quantization import dynamic_range
from ...ir.ops.recurrent import activations_of, directions_of
from ...ir.ops.spec import Array
from ...onednn.kernels import Kernels
from ...onednn.library import Stream
from ...onednn.recurrent_kernel import CONSTANTS, lstm_kernel
from ...plan.types import Step
from .binding import Binder, need
from .recurrent_steps import (
    KernelSteps,
    LayerSize,
    LibrarySteps,
    Steps,
)
from .recurrent_weights import product
from .values import NotLowered


def dynamic_lstm(binder: Binder, step: Step) -> None:
    """A layer of DynamicQuantizeLSTM whose weights are s8 codes, or such and 128."""
    attrs = OPS[step.op].known(step.params)
    default = activations_of(step.op, {**attrs, "activations": ()})
    plain = attrs["clip"] is None and not attrs["input_forget"]
    if not plain or activations_of(step.op, attrs) != default:
        raise NotLowered("its gates are computed otherwise than by sigmoid and tanh alone")
    for role, what in (("sequence_lens", "lengths"), ("p", "peepholes")):
        if step.arg(role) is not None:
            raise NotLowered(f"its steps in int8 have no {what}")
    binder.commit_runner(DynamicLayers(binder, step))


class DynamicLayers:
    """The directions of one layer, bound for its shapes.

    Attributes:
        inputs, outputs: names of the values that it reads at run time, and that it writes.
        single_call, follows: as a `HostStep` has them.
        implementations: what computes the product of the input, and the steps.
    """

    single_call = None
    follows = False

    def __init__(self, binder: Binder, step: Step) -> None:
        self.step, self.engine = step, binder.engine
        backwards = directions_of(OPS[step.op].known(step.params))
        steps, _directions, batch, hidden = binder.dims(step.output)
        self.size = LayerSize(steps, batch, hidden, backwards)
        self.features = binder.dims(need(step, "src"))[2]
        read = [step.arg(role) for role in ("src", "initial_h", "initial_c")]
        self._constants = {
            name: binder.constants.data(name) for name in read if name and binder.is_constant(name)
        }
        self._read = read
        self.inputs = tuple(
            dict.fromkeys(name for name in read if name and name not in self._constants)
        )
        self.outputs = tuple(filter(None, step.outputs))
        self.kernel = lstm_kernel(binder.library)
        directions, rows = range(len(backwards)), steps * batch
        self.of_input = product(binder, step, "w", directions, rows)
        self.steps = _steps_of(binder, step, self.size, self.kernel)
        self.implementations = [self.of_input.implementation, self.steps.implementation]
        self._idle: list[_Work] = []

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs, as new arrays.

        Args:
            arrays: an array for each of `inputs`, in any strides.

        Raises:
            OneDnnError: a product failed.
        """
        known = {**self._constants, **arrays}
        x, h, c = (None if name is None else known[name] for name in self._read)
        assert x is not None
        try:
            work = self._idle.pop()  # atomic, as append is: no lock
        except IndexError:
            work = _Work(self)
        found = work.run(x, h, c)
        self._idle.append(work)
        named = zip(self.step.outputs, found, strict=False)
        return {name: array for name, array in named if name}


def _steps_of(binder: Binder, step: Step, size: LayerSize, kernel: Kernels | None) -> Steps:
    """By the kernel, if that is faster or the library is not exact; where the caller has chosen the
    library's sums, which saturate without VNNI, by these.
    """
    chosen = not binder.exact and not binder.library.effective_isa().has_vnni
    if kernel is None or chosen or not size.suits_kernel(binder.threads):
        try:
            return LibrarySteps(binder, step, size)
        except NotLowered:
            if kernel is None or not size.fits_kernel:
                raise
    return KernelSteps(binder, step, size, kernel)


class _Work:
    """The memory of one run, with the calls of its products ready: nobody else uses it meanwhile."""

    def __init__(self, layer: DynamicLayers) -> None:
        self._layer, size = layer, layer.size
        directions, rows = len(size.backwards), size.steps * size.batch
        self._shape = (size.steps, size.batch, layer.features)
        self._codes = np.empty(self._shape, np.uint8)
        self._scale, self._zero = np.ones(1, np.float32), np.zeros(1, np.int32)
        pre = np.empty((size.steps, size.batch, directions, 4 * size.hidden), np.float32)
        stream = Stream(layer.engine)
        self._multiply = layer.of_input.call(
            stream,
            self._codes.reshape(rows, -1),
            pre.reshape(rows, -1),
            self._scale,
            self._zero,
        )
        self._quantize = self._by_numpy() if layer.kernel is None else self._by_kernel(layer.kernel)
        self._room = layer.steps.room(stream, pre)

    def run(self, x: Array, h: Array | None, c: Array | None) -> Sequence[Array]:
        """y, y_h, y_c."""
        size, room = self._layer.size, self._room
        self._quantize(x)
        self._multiply()
        room.h[...] = 0 if h is None else h
        room.c[...] = 0 if c is None else c
        y = np.empty((size.steps, *room.h.shape), np.float32)
        room.run(y)
        return y, room.h.copy(), room.c.copy()

    # Neither of these holds `self`: it would be a cycle, and keep the memory until it is collected.

    def _by_kernel(self, kernel: Kernels) -> Callable[[Array], None]:
        codes, scale, zero, shape = self._codes, self._scale, self._zero, self._shape
        work = kernel.work(
            "quantize",
            constants=CONSTANTS.ctypes.data,
            codes=codes.ctypes.data,
            scale=scale.ctypes.data,
            zero=zero.ctypes.data,
            count=codes.size,
        )
        call = kernel.call("quantize", work, held=(codes, scale, zero))

        def quantize(x: Array) -> None:
            given = np.require(x, np.float32, ("C", "ALIGNED"))
            if given.shape != shape:
                raise ValueError(f"the input must be {list(shape)}, found {list(given.shape)}")
            work.x = given.ctypes.data
            call()

        return quantize

    def _by_numpy(self) -> Callable[[Array], None]:
        codes, found_scale, found_zero = self._codes, self._scale, self._zero

        def quantize(x: Array) -> None:
            scale, zero = dynamic_range(x)
            values = np.rint(x / scale)
            np.add(values, zero.astype(np.float32), values)
            codes[...] = np.clip(values, 0, 255, values)
            found_scale[0], found_zero[0] = scale, zero

        return quantize
