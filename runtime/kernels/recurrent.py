"""Recurrent layers: the row's arithmetic, one task a direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...errors import FqfuseError, InvalidInput
from ...ir.ops import OPS
from ...ir.ops.recurrent import DYNAMIC, DynamicLayer, Layer, Lost, gates_of, whole
from ...ir.ops.rows import A
from ...ir.ops.spec import Array
from ...plan.summation import Summation, summation
from .base import Binding, Kernel, Recorder, Result, Tasks, Values, nbytes
from .pairs import PairSums, pairs_of
from .recurrent_int8 import Int8Recurrent


class _Recurrent(Kernel):
    """A layer in f32, or one whose products are quantized at run time."""

    def __init__(self, binding: Binding) -> None:
        self._step = step = binding.step
        spec = OPS[step.op]
        self._attrs = spec.known(step.params)
        self._operands = {role: binding.operands[value] for role, value in step.args}
        self._whole: dict[str, A] = {}
        self._law = summation(binding.profile.isa, "matmul", signed=False)
        self._lost: dict[str, list[Lost | None]] = {}
        if step.op == DYNAMIC:
            for role in ("w", "r"):
                codes, zero = binding.need(role).data, binding.need(f"{role}_zero_point").data
                if codes is not None and zero is not None:
                    self._whole[role] = whole(codes, zero)
                    self._lost[role] = _lost(self._law, codes)
            self.own_bytes = sum(array.nbytes for array in self._whole.values())
        self._named = [bool(value) for value in step.outputs]
        self.results = tuple(
            Result(dtype, shape)
            for dtype, shape in zip(binding.dtypes, binding.shapes, strict=True)
        )
        steps, self._directions, batch, hidden = binding.shapes[0]
        self._rows = (steps * batch, gates_of(step.op) * hidden)
        self.local_bytes = nbytes(self._rows, np.float32)

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """One task for each direction."""
        arrays = {name: operand.read(values) for name, operand in self._operands.items()}
        found = iter(outputs)
        targets = [next(found) if named else None for named in self._named]

        def record(d: int, record: Recorder) -> None:
            record(self._compute, arrays, d, targets, record.take(self._rows, np.float32))

        return Tasks(self._directions, record)

    def _layer(self, arrays: Mapping[str, A]) -> Layer:
        step, attrs = self._step, self._attrs
        b, lens, p = (arrays.get(role) for role in ("b", "sequence_lens", "p"))
        states = arrays.get("initial_h"), arrays.get("initial_c")
        if step.op != DYNAMIC:
            weights = arrays["w"], arrays["r"]
            attention = arrays.get("attention")
            return Layer(step.op, attrs, arrays["src"], *weights, b, lens, *states, p, attention)
        decoded = [
            self._whole[role]
            if role in self._whole
            else whole(arrays[role], arrays[f"{role}_zero_point"])
            for role in ("w", "r")
        ]
        w, r = decoded
        layer = DynamicLayer(step.op, attrs, arrays["src"], w, r, b, lens, *states, p)
        lost = [self._lost.get(role) or _lost(self._law, arrays[role]) for role in ("w", "r")]
        scales = arrays["w_scale"], arrays["r_scale"]
        return replace(layer, w_scale=scales[0], r_scale=scales[1], lost=(lost[0], lost[1]))

    def _compute(
        self, arrays: Mapping[str, A], d: int, targets: Sequence[A | None], rows: A
    ) -> None:
        y, *states = targets
        assert y is not None
        try:
            # made here, since weights that a run gives are copied
            last = self._layer(arrays).direction(d, y[:, d], rows)
        except FqfuseError:
            raise
        except ValueError as error:
            step = self._step
            raise InvalidInput(
                f"{step.op} cannot be computed: {error}",
                where=", ".join(step.origin) or step.name,
                hint="feed lengths that fit the number of steps",
            ) from error
        for target, state in zip(states, last, strict=False):
            if target is not None:
                target[d] = state


def _lost(law: Summation, codes: A) -> list[Lost | None]:
    """What products with weights [D, K, G*H] lose, for each direction, where they are oneDNN's matmul,
    which takes codes of u8 less 128.
    """
    if law.pairs is None:
        return [None] * codes.shape[0]
    middle = 128 if codes.dtype == np.uint8 else 0
    signed = (codes.astype(np.int16) - middle).astype(np.int8)
    return [_taken_off(pairs_of(law, weights, weights.shape[0], 0)) for weights in signed]


def _taken_off(pairs: PairSums | None) -> Lost | None:
    if pairs is None:
        return None

    def take_off(codes: A, sums: A) -> None:
        pairs.on(codes, slice(0, sums.shape[1]))(sums)

    return take_off


def bind_recurrent(binding: Binding) -> Kernel:
    """A layer of an RNN, GRU or LSTM."""
    int8 = binding.need("src").dtype.is_integer
    return Int8Recurrent(binding) if int8 else _Recurrent(binding)
