"""Layers of DynamicQuantizeLSTM: the library's int8 products, the input's over all steps at once and
the hidden state's at each, with NumPy between them. All directions take their steps together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from ...ir.ops import OPS
from ...ir.ops.quantization import dynamic_range
from ...ir.ops.recurrent import DYNAMIC, activations_of, directions_of
from ...ir.ops.spec import Array
from ...onednn.attributes import Attributes, Sum
from ...onednn.enums import Arg, DataType, arg_scales, arg_zero_points
from ...onednn.layouts import row_major
from ...onednn.library import Stream
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive import ExecArgs, Primitive
from ...onednn.primitive_desc import PrimitiveDesc
from ...plan.types import Step
from .binding import Binder, NotLowered, need

__all__ = ["DynamicLayers", "dynamic_lstm"]

_F32 = NDArray[np.float32]
_GATES = 4

# of a number NumPy would make an array at each call
_ONE, _CODES = np.ones((), np.float32), np.full((), 255, np.float32)

_ALONE = 1 << 22
"""Multiplications of one step up to which a thread alone is as fast as several, which have to meet
behind each product: twice a step, and a busy machine keeps them waiting.
"""


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
        implementations: names of the library's that it runs.
    """

    single_call = None
    follows = False

    def __init__(self, binder: Binder, step: Step) -> None:
        self.step, self.engine = step, binder.engine
        self.backwards = directions_of(OPS[step.op].known(step.params))
        self.steps, self.directions, self.batch, self.hidden = binder.dims(step.output)
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
        self._alone = self.batch * self.hidden * _GATES * self.hidden <= _ALONE
        self.of_input = [
            self._product(binder, "w", d, self.steps * self.batch) for d in range(self.directions)
        ]
        with self.threads_of_steps():
            self.of_state = [
                self._product(binder, "r", d, self.batch) for d in range(self.directions)
            ]
        self.implementations = [
            self.of_input[0][0].desc.impl_info,
            self.of_state[0][0].desc.impl_info,
        ]
        self.bias = self._biases(binder)
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

    @contextmanager
    def threads_of_steps(self) -> Iterator[None]:
        """As many OpenMP threads as the products of single steps are made for, and run by."""
        library = self.engine.library
        before = library.max_threads()
        library.set_threads(1 if self._alone else before)
        try:
            yield
        finally:
            library.set_threads(before)

    # -- binding -----------------------------------------------------------------------------------

    def _product(
        self, binder: Binder, role: str, d: int, rows: int
    ) -> tuple[Primitive, dict[int, Memory]]:
        """The product of `rows` rows of codes with the weights of a direction; that of the hidden
        state is added to what its destination holds.
        """
        codes, scales = self._weights(binder, role, d)
        library = binder.library
        operands = (
            row_major(library, (rows, codes.shape[0]), DataType.u8),
            MemoryDesc.any(library, codes.shape, DataType.s8),
            None,
            row_major(library, (rows, codes.shape[1]), DataType.f32),
        )
        attributes = Attributes(
            {Arg.SRC: 0, Arg.WEIGHTS: 0 if scales.size == 1 else 2},
            {Arg.SRC: 0},
            (Sum(),) if role == "r" else (),
        )
        desc: PrimitiveDesc = binder.describe(self.step, "matmul", *operands, attributes=attributes)
        objection = binder.objection(desc, lambda: codes)
        if objection:
            raise NotLowered(objection)
        packed = binder.constants.packed(
            need(self.step, role), f"{DYNAMIC}: direction {d}", codes, desc.weights_md()
        )
        args = {
            Arg.WEIGHTS: packed,
            arg_scales(Arg.WEIGHTS): binder.constants.vector(scales),
        }
        return Primitive(desc), args

    def _weights(self, binder: Binder, role: str, d: int) -> tuple[NDArray[np.int8], _F32]:
        """Codes of s8 without zero point, [inputs, G*H], and their scales, of a direction."""
        names = [need(self.step, name) for name in (role, f"{role}_zero_point", f"{role}_scale")]
        if not all(map(binder.is_constant, names)):
            raise NotLowered(f"its {role} is computed at run time")
        codes, zero, scale = (binder.constants.data(name)[d] for name in names)
        middle = 128 if codes.dtype == np.uint8 else 0
        if (zero != middle).any():
            raise NotLowered(f"its {role} has another zero point than {middle}")
        signed = (codes.astype(np.int16) - middle).astype(np.int8)
        return np.ascontiguousarray(signed), np.atleast_1d(scale).astype(np.float32)

    def _biases(self, binder: Binder) -> _F32 | None:
        """Their sums, [D, 1, G*H]."""
        name = self.step.arg("b")
        if name is None:
            return None
        if not binder.is_constant(name):
            raise NotLowered("its b is computed at run time")
        of_w, of_r = np.split(binder.constants.data(name), 2, axis=1)
        return np.asarray((of_w + of_r)[:, None], np.float32)


class _Work:
    """The memory of one run, with the calls of its products ready: nobody else uses it meanwhile."""

    def __init__(self, layer: DynamicLayers) -> None:
        self._layer = layer
        steps, directions, batch, hidden = (
            layer.steps,
            layer.directions,
            layer.batch,
            layer.hidden,
        )
        self._stream = Stream(layer.engine)
        self._args: list[ExecArgs] = []  # the calls point into these
        rows = steps * batch
        self._x = np.empty((steps, batch, layer.features), np.float32)
        self._x_codes = np.empty((directions, *self._x.shape), np.uint8)
        self._x_scale, self._x_zero = np.ones(1, np.float32), np.zeros(1, np.int32)
        self._pre = np.empty((directions, rows, _GATES * hidden), np.float32)
        self._h = np.empty((directions, batch, hidden), np.float32)
        self._c = np.empty_like(self._h)
        self._t = np.empty_like(self._h)
        self._h_codes = np.empty(self._h.shape, np.uint8)
        self._scale = np.ones((directions, 1), np.float32)
        self._zero = np.zeros((directions, 1), np.int32)
        self._of_input = [
            self._call(
                layer.of_input[d],
                self._x_codes[d].reshape(rows, -1),
                self._pre[d],
                self._x_scale,
                self._x_zero,
            )
            for d in range(directions)
        ]
        self._steps = []
        each = self._pre.reshape(directions, steps, batch, _GATES * hidden)
        for s in range(steps):
            calls = [
                self._call(
                    layer.of_state[d],
                    self._h_codes[d],
                    each[d, s],
                    self._scale[d],
                    self._zero[d],
                )
                for d in range(directions)
            ]
            gates = each[:, s]
            parts = [gates[..., at * hidden : (at + 1) * hidden] for at in range(_GATES)]
            self._steps.append((calls, gates[..., : 3 * hidden], *parts))

    def _call(
        self,
        product: tuple[Primitive, dict[int, Memory]],
        codes: NDArray[np.uint8],
        target: _F32,
        scale: _F32,
        zero: NDArray[np.int32],
    ) -> tuple[Primitive, Callable[[], int]]:
        primitive, fixed = product
        engine = self._layer.engine
        memories = {
            **fixed,
            Arg.SRC: Memory.wrap(engine, codes),
            Arg.DST: Memory.wrap(engine, target),
            arg_scales(Arg.SRC): Memory.wrap(engine, scale),
            arg_zero_points(Arg.SRC): Memory.wrap(engine, zero),
        }
        if primitive.desc.scratchpad_size:
            memories[Arg.SCRATCHPAD] = Memory.allocate(engine, primitive.desc.scratchpad_md)
        args = ExecArgs(primitive.desc, memories)
        self._args.append(args)
        return primitive, primitive.call(self._stream, args)

    def run(self, x: Array, h: Array | None, c: Array | None) -> Sequence[Array]:
        """y, y_h, y_c."""
        layer, state, cell = self._layer, self._h, self._c
        self._multiply_input(x)
        state[...] = 0 if h is None else h
        cell[...] = 0 if c is None else c
        y = np.empty((layer.steps, *state.shape), np.float32)
        with layer.threads_of_steps():
            self._run_steps(y)
        return y, state.copy(), cell.copy()

    def _run_steps(self, y: _F32) -> None:
        layer, state, cell = self._layer, self._h, self._c
        order = [
            range(layer.steps - 1, -1, -1) if backwards else range(layer.steps)
            for backwards in layer.backwards
        ]
        t = self._t
        for (calls, sigmoids, i, o, f, g), *places in zip(self._steps, *order, strict=True):
            self._quantize_state()
            for primitive, call in calls:
                status = call()
                if status:
                    raise primitive.execution_error(status)
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

    def _multiply_input(self, x: Array) -> None:
        """The products of the input for all steps, in the order of each direction, with biases."""
        layer, values = self._layer, self._x
        scale, zero = dynamic_range(x)
        np.divide(x, scale, values)
        np.rint(values, values)
        np.add(values, zero.astype(np.float32), values)
        np.clip(values, 0, 255, values)
        self._x_scale[0], self._x_zero[0] = scale, zero
        for codes, backwards in zip(self._x_codes, layer.backwards, strict=True):
            codes[...] = values[::-1] if backwards else values
        for primitive, call in self._of_input:
            status = call()
            if status:
                raise primitive.execution_error(status)
        if layer.bias is not None:
            np.add(self._pre, layer.bias, self._pre)

    def _quantize_state(self) -> None:
        """Codes, scale and zero point of the hidden state, of each direction by itself."""
        h, t, scale = self._h, self._t, self._scale
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
        self._h_codes[...] = t
