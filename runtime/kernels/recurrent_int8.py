"""Recurrent layers in int8, in the arithmetic of oneDNN's primitives.

With d and z the scale and shift of the data, k the scale of a row of the weights, q codes:

    gate = (sum of q*w over the input and the hidden state) / (k*d) + bias'
    bias' = bias - (sum of w) * z / (k*d)
    h    = sat(round_half_even(d*h + z))        after each step; and of r*h, in front of a GRU's last product

and with a projection, whose rows have the scale p, codes of h are multiplied once more:

    h    = ((sum of q*w) - (sum of w) * z) / (p*d)

Sums of codes are exact; gates, the cell state and h, until it is rounded, are f32. Codes are u8, or s8 with
z = 0 (primitives alone).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...ir.ops import OPS
from ...ir.ops.recurrent import directions_of
from ...ir.ops.rows import A
from ...ir.ops.spec import Array
from ...plan.recurrent_parameters import qparams_of
from ...plan.summation import EXACT, Summation, summation
from .base import Binding, Kernel, Recorder, Result, Tasks, Values, nbytes
from .pairs import PairSums, pairs_of

_EXACT = 1 << 24
_PRODUCT = 255 * 128


class Int8Layer:
    """The arithmetic of a layer of LSTM or GRU on codes, with ONNX's order of gates.

    Args:
        op: `LSTM` or `GRU`.
        data: scale and shift of the data.
        scales: of the weights, one or [G*H].
        w, r: codes of the weights, [D, G*H, I] and [D, G*H, P].
        projection: codes of its weights, [D, P, H], and their scales, one or [P]; None: P is H.
        signed: codes are s8.
        law: how their products are summed.

    Attributes:
        w, r: the same in a float type in which sums of their products are exact.
    """

    def __init__(
        self,
        op: str,
        data: Sequence[float],
        scales: A,
        w: A,
        r: A,
        projection: tuple[A, A] | None = None,
        *,
        signed: bool = False,
        law: Summation = EXACT,
    ) -> None:
        self._step = _lstm_step if op == "LSTM" else _gru_step
        self._range = (-128, 127) if signed else (0, 255)
        self.scale, self.shift = (np.float32(value) for value in data)
        self._divisor = scales * self.scale
        codes = w, r
        self.w, self.r = (c.astype(_exact(w.shape[2] + r.shape[2])) for c in codes)
        self._sums = np.sum([c.sum(2, dtype=np.int64) for c in codes], axis=0).astype(np.float32)
        self._lost_of_w, self._lost_of_r = (_pairs(law, c) for c in codes)
        self._projection = None if projection is None else _Projection(*projection, law)

    def direction(
        self, d: int, x: A, y: A, h: A, c: A, b: A | None, *, backwards: bool, rows: A | None = None
    ) -> tuple[A, A]:
        """Computes a direction into y [T, N, P], codes or the numbers that they stand for.

        Args:
            d: which direction.
            x: codes, [T, N, I].
            y: where the result goes.
            h: codes of the state in front of the first step, [N, P].
            c: that of the cell, [N, H].
            b: the biases of w and those of r, [2*G*H]; None: 0.
            backwards: whether it goes from the last step to the first.
            rows: memory for the products, [T*N, G*H].

        Returns:
            The last states, codes and the cell's.
        """
        steps, batch, inputs = x.shape
        wide = x.reshape(steps * batch, inputs).astype(self.w.dtype)
        flat = np.matmul(wide, self.w[d].T, out=rows)
        _take_off(self._lost_of_w[d], wide, flat)
        sums = flat.reshape(steps, batch, self.w.shape[1])
        bias = self._biases(d, b)
        for t in range(steps - 1, -1, -1) if backwards else range(steps):
            h, c = self._step(self, sums[t], h, c, d, bias)
            y[t] = h if y.dtype.kind in "iu" else self.decoded(h)
        return h, c

    def _biases(self, d: int, b: A | None) -> A:
        found: A = -(self._sums[d] * self.shift / self._divisor)
        if b is not None:
            of_w, of_r = np.split(b, 2)
            found = (of_w + of_r) + found
        return found

    def codes(self, x: A) -> A:
        """The codes of numbers, as f32."""
        found: A = np.clip(np.rint(x * self.scale + self.shift), *self._range)
        return found

    def decoded(self, codes: A) -> A:
        """The numbers of codes."""
        found: A = (codes - self.shift) / self.scale
        return found

    def gate(self, sums: A, rows: slice, bias: A) -> A:
        """Some gates, in front of their activation."""
        divisor = self._divisor if self._divisor.size == 1 else self._divisor[rows]
        found: A = sums.astype(np.float32, copy=False) / divisor + bias[rows]
        return found

    def product(self, d: int, codes: A, rows: slice) -> A:
        """Sums of products of codes of the hidden state with some rows of its weights."""
        wide = codes.astype(self.r.dtype, copy=False)
        found: A = wide @ self.r[d][rows].T
        _take_off(self._lost_of_r[d], wide, found, rows)
        return found

    def projected(self, d: int, codes: A) -> A:
        """Codes of the hidden state behind the projection, where there is one."""
        if self._projection is None:
            return codes
        return self.codes(self._projection.decoded(d, codes, self.scale, self.shift))


class _Projection:
    """Products of codes of the hidden state with further weights."""

    def __init__(self, weights: A, scales: A, law: Summation) -> None:
        self._lost = _pairs(law, weights)
        self._weights = weights.astype(_exact(weights.shape[2]))
        self._sums = weights.sum(2, dtype=np.int64).astype(np.float32)
        self._scales = scales

    def decoded(self, d: int, codes: A, scale: np.float32, shift: np.float32) -> A:
        wide = codes.astype(self._weights.dtype)
        sums = wide @ self._weights[d].T
        _take_off(self._lost[d], wide, sums)
        moved = sums.astype(np.float32) - self._sums[d] * shift
        found: A = moved / (self._scales * scale)
        return found


_Lost = tuple[PairSums | None, PairSums | None]


def _pairs(law: Summation, weights: A) -> list[_Lost]:
    """Of weights [D, rows, K], for each direction, the pairs along K that can leave s16: in products with
    one row of codes, and with more.
    """
    laws = law if law.rows_cut == 1 else replace(law, block=0), law
    each = [tuple(pairs_of(one, w.T, w.shape[1], 0) for one in laws) for w in weights]
    return [(one, more) for one, more in each]


def _take_off(pairs: _Lost, codes: A, sums: A, rows: slice | None = None) -> None:
    """What saturation takes off the sums of codes [N, K] with these rows of the weights."""
    lost = pairs[min(codes.shape[0], 2) - 1]
    if lost is not None and codes.size:
        chosen = slice(0, sums.shape[1]) if rows is None else rows
        lost.on(codes.astype(np.float32, copy=False), chosen)(sums)


def _exact(products: int) -> type[np.float32 | np.float64]:
    """The float type that adds up so many products exactly."""
    return np.float32 if products * _PRODUCT < _EXACT else np.float64


def _lstm_step(layer: Int8Layer, sums: A, h: A, c: A, d: int, bias: A) -> tuple[A, A]:
    size = c.shape[1]
    sums = sums + layer.product(d, h, slice(0, 4 * size))
    i, o, f = np.split(_sigmoid(layer.gate(sums[:, : 3 * size], slice(0, 3 * size), bias)), 3, 1)
    g = np.tanh(layer.gate(sums[:, 3 * size :], slice(3 * size, None), bias))
    c = f * c + i * g
    return layer.projected(d, layer.codes(o * np.tanh(c))), c


def _gru_step(layer: Int8Layer, sums: A, h: A, c: A, d: int, bias: A) -> tuple[A, A]:
    two = 2 * h.shape[1]
    first = sums[:, :two] + layer.product(d, h, slice(0, two))
    z, reset = np.split(_sigmoid(layer.gate(first, slice(0, two), bias)), 2, 1)
    before = layer.decoded(h)
    last = sums[:, two:] + layer.product(d, layer.codes(reset * before), slice(two, sums.shape[1]))
    new = np.tanh(layer.gate(last, slice(two, None), bias))
    return layer.codes(z * before + (1 - z) * new), c


def _sigmoid(x: A) -> A:
    with np.errstate(over="ignore"):  # of numbers far below 0, whose share is 0
        found: A = 1 / (1 + np.exp(-x))
    return found


class Int8Recurrent(Kernel):
    """A layer of LSTM or GRU on codes of u8."""

    def __init__(self, binding: Binding) -> None:
        step = binding.step
        found = qparams_of(step.attr)
        if found is None:
            raise binding.refuse("codes without parameters")
        data, weights = found
        w, r = (binding.constant(role) for role in ("w", "r"))
        law = summation(binding.profile.isa, step.primitive, signed=False)
        self._layer = Int8Layer(step.op, data.values, weights.array, w, r, law=law)
        self._backwards = directions_of(OPS[step.op].known(step.params))
        self._named = [bool(value) for value in step.outputs]
        self._src = binding.need("src")
        self._bias = binding.arg("b")
        self._states = binding.arg("initial_h"), binding.arg("initial_c")
        self.results = tuple(
            Result(dtype, shape)
            for dtype, shape in zip(binding.dtypes, binding.shapes, strict=True)
        )
        steps, _, batch, self._hidden = binding.shapes[0]
        self._rows = steps * batch, w.shape[1]
        self.own_bytes = self._layer.w.nbytes + self._layer.r.nbytes
        self.local_bytes = nbytes(self._rows, self._layer.w.dtype)

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """One task for each direction."""
        found = iter(outputs)
        targets = [next(found) if named else None for named in self._named]
        x, b, h, c = (
            None if operand is None else operand.read(values)
            for operand in (self._src, self._bias, *self._states)
        )

        def record(d: int, record: Recorder) -> None:
            rows = record.take(self._rows, self._layer.w.dtype)
            record(self._compute, d, (x, b, h, c), targets, rows)

        return Tasks(len(self._backwards), record)

    def _compute(
        self, d: int, given: Sequence[A | None], targets: Sequence[A | None], rows: A
    ) -> None:
        x, b, h, c = given
        y, *states = targets
        assert x is not None
        assert y is not None
        steps, batch, _ = x.shape
        zeros = np.zeros((batch, self._hidden), np.float32)
        # no steps leave states of 0, as in f32
        hidden, cell = self._layer.direction(
            d,
            x,
            y[:, d],
            self._layer.codes(zeros if h is None or not steps else h[d]),
            zeros if c is None or not steps else c[d],
            None if b is None else b[d],
            backwards=self._backwards[d],
            rows=rows,
        )
        for target, state in zip(states, (self._layer.decoded(hidden), cell), strict=False):
            if target is not None:
                target[d] = state
