"""Recurrent layers in int8, in the arithmetic of oneDNN's primitives.

With d and z the scale and shift of the data, k the scale of a row of the weights, q codes:

    gate = (sum of q*w over the input and the hidden state) * 1/(k*d) + bias'
    bias' = bias - (sum of w) * z/(k*d)
    h    = sat(round_half_even(d*h + z))        after each step; and of r*h, in front of a GRU's last product

Sums of codes are exact; gates, the cell state and h, until it is rounded, are f32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.ops import OPS
from ...ir.ops.recurrent import directions_of
from ...ir.ops.rows import A
from ...ir.ops.spec import Array
from ...plan.recurrent_parameters import qparams_of
from .base import Binding, Kernel, Recorder, Result, Tasks, Values, nbytes


class Int8Recurrent(Kernel):
    """A layer of LSTM or GRU on codes of u8."""

    def __init__(self, binding: Binding) -> None:
        step = binding.step
        found = qparams_of(step.attr)
        if found is None:
            raise binding.refuse("codes without parameters")
        data, weights = found
        self._lstm = step.op == "LSTM"
        self._scale, self._shift = (np.float32(value) for value in data.values)
        self._factor = np.float32(1) / (weights.array * self._scale)
        self._backwards = directions_of(OPS[step.op].known(step.params))
        self._u8 = binding.dtypes[0].is_integer
        self._named = [bool(value) for value in step.outputs]
        self._src = binding.need("src")
        self._bias = binding.arg("b")
        self._states = binding.arg("initial_h"), binding.arg("initial_c")
        codes = [binding.constant(role) for role in ("w", "r")]
        # sums of up to 2^24 are exact in f32
        exact = sum(array.shape[2] for array in codes) * 255 * 128 < 1 << 24
        self._w, self._r = (c.astype(np.float32 if exact else np.float64) for c in codes)
        self._sums = np.sum([c.sum(2, dtype=np.int64) for c in codes], axis=0).astype(np.float32)
        self.results = tuple(
            Result(dtype, shape)
            for dtype, shape in zip(binding.dtypes, binding.shapes, strict=True)
        )
        steps, _, batch, self._hidden = binding.shapes[0]
        self._rows = steps * batch, codes[0].shape[1]
        self.own_bytes = self._w.nbytes + self._r.nbytes
        self.local_bytes = nbytes(self._rows, self._w.dtype)

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """One task for each direction."""
        found = iter(outputs)
        targets = [next(found) if named else None for named in self._named]
        x, b, h, c = (
            None if operand is None else operand.read(values)
            for operand in (self._src, self._bias, *self._states)
        )

        def record(d: int, record: Recorder) -> None:
            rows = record.take(self._rows, self._w.dtype)
            record(self._compute, d, (x, b, h, c), targets, rows)

        return Tasks(len(self._backwards), record)

    def _compute(
        self, d: int, given: Sequence[A | None], targets: Sequence[A | None], rows: A
    ) -> None:
        x, b, h, c = given
        assert x is not None
        steps, batch, inputs = x.shape
        np.matmul(x.reshape(steps * batch, inputs).astype(rows.dtype), self._w[d].T, out=rows)
        sums = rows.reshape(steps, batch, rows.shape[1])
        bias = self._biases(d, b)
        y, *states = targets
        assert y is not None
        zeros = np.zeros((batch, self._hidden), np.float32)
        # no steps leave states of 0, as in f32
        hidden = self._codes(zeros if h is None or not steps else h[d])
        cell = zeros if c is None or not steps else c[d]
        one = self._lstm_step if self._lstm else self._gru_step
        for t in range(steps - 1, -1, -1) if self._backwards[d] else range(steps):
            hidden, cell = one(sums[t], hidden, cell, d, bias)
            y[t, d] = hidden if self._u8 else self._decoded(hidden)
        for target, state in zip(states, (self._decoded(hidden), cell), strict=False):
            if target is not None:
                target[d] = state

    def _biases(self, d: int, b: A | None) -> A:
        found: A = -(self._sums[d] * (self._shift * self._factor))
        if b is not None:
            of_w, of_r = np.split(b[d], 2)
            found = (of_w + of_r) + found
        return found

    def _codes(self, x: A) -> A:
        found: A = np.clip(np.rint(x * self._scale + self._shift), 0, 255)
        return found

    def _decoded(self, codes: A) -> A:
        found: A = (codes - self._shift) / self._scale
        return found

    def _gate(self, sums: A, rows: slice, bias: A) -> A:
        factor = self._factor if self._factor.size == 1 else self._factor[rows]
        found: A = sums.astype(np.float32, copy=False) * factor + bias[rows]
        return found

    def _lstm_step(self, sums: A, h: A, c: A, d: int, bias: A) -> tuple[A, A]:
        size = self._hidden
        sums = sums + h.astype(sums.dtype, copy=False) @ self._r[d].T
        i, o, f = np.split(
            _sigmoid(self._gate(sums[:, : 3 * size], slice(0, 3 * size), bias)), 3, 1
        )
        g = np.tanh(self._gate(sums[:, 3 * size :], slice(3 * size, None), bias))
        c = f * c + i * g
        return self._codes(o * np.tanh(c)), c

    def _gru_step(self, sums: A, h: A, c: A, d: int, bias: A) -> tuple[A, A]:
        two, r = 2 * self._hidden, self._r[d]
        first = sums[:, :two] + h.astype(sums.dtype, copy=False) @ r[:two].T
        z, reset = np.split(_sigmoid(self._gate(first, slice(0, two), bias)), 2, 1)
        before = self._decoded(h)
        last = sums[:, two:] + self._codes(reset * before).astype(sums.dtype) @ r[two:].T
        new = np.tanh(self._gate(last, slice(two, None), bias))
        return self._codes(z * before + (1 - z) * new), c


def _sigmoid(x: A) -> A:
    found: A = 1 / (1 + np.exp(-x))
    return found
