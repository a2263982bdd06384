"""Rows of recurrent layers, LSTM, GRU and RNN, and their arithmetic in floats.

Sizes: T steps, N sequences, I inputs, H hidden values, D directions; G gates (4, 3, 1), in ONNX's order: i o f c of LSTM, z r h of
GRU. Order of the floats: a layer's products over all steps are one matrix product, to which the biases are added (their sum first); at each
step the product with the hidden state is added to that, then peepholes, clip and activations apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..types import Dim, DType, Shape
from . import dims
from .activation import ACTIVATION
from .rows import A, Call, flag, integer, not_covered, number, row, text
from .spec import Attrs, OpSpec, ShapeError

__all__ = ["RECURRENT", "Activation", "Layer", "activations_of", "directions_of", "gates_of"]


@dataclass(frozen=True)
class _Cell:
    """What tells the layers from each other.

    Attributes:
        gates: how many.
        activations: the names of its default activations, of one direction.
    """

    gates: int
    activations: tuple[str, ...]


_CELLS = {
    "LSTM": _Cell(4, ("Sigmoid", "Tanh", "Tanh")),
    "GRU": _Cell(3, ("Sigmoid", "Tanh")),
    "RNN": _Cell(1, ("Tanh",)),
}

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class Activation:
    """An activation with its parameters: a row of the op table, or one that ONNX has for recurrent
    layers alone.

    Attributes:
        name: as the op table writes it.
        alpha, beta: its parameters; 0 where it has none.
    """

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, x: A) -> A:
        """The activation of each element."""
        return _FUNCTIONS[self.name].compute(x, self.alpha, self.beta)


@dataclass(frozen=True)
class _Function:
    """An activation's parameters (None: the model must give it), and what it computes."""

    parameters: tuple[float | None, ...]
    compute: Callable[[A, float, float], A]


def _of_row(spec: OpSpec) -> _Function:
    """A row of activations: its float attributes are the parameters."""
    names = tuple(spec.attrs)
    defaults = tuple(float(number(spec.attrs, name)) for name in names)  # type: ignore[arg-type]

    def compute(x: A, alpha: float, beta: float) -> A:
        assert spec.evaluate is not None
        attrs = dict(zip(names, (alpha, beta), strict=False))
        return spec.evaluate([x], attrs)[0]

    return _Function(defaults, compute)


def _sigmoid(x: A, _alpha: float, _beta: float) -> A:
    # In place of four arrays one: a layer calls it at each step.
    y: A = np.negative(x)
    np.exp(y, out=y)
    y += 1
    return np.reciprocal(y, out=y)


_BY_ROWS = ("Relu", "LeakyRelu", "HardSigmoid", "Elu", "Softsign", "Softplus")
_FUNCTIONS: Mapping[str, _Function] = {
    **{spec.name: _of_row(spec) for spec in ACTIVATION if spec.name in _BY_ROWS},
    "ThresholdedRelu": _Function((1.0,), lambda x, alpha, _beta: np.where(x > alpha, x, 0 * x)),
    "Sigmoid": _Function((), _sigmoid),
    "Tanh": _Function((), lambda x, _alpha, _beta: np.tanh(x)),
    "Affine": _Function(
        (None, None), lambda x, alpha, beta: x * x.dtype.type(alpha) + x.dtype.type(beta)
    ),
    "ScaledTanh": _Function(
        (None, None), lambda x, alpha, beta: x.dtype.type(alpha) * np.tanh(x.dtype.type(beta) * x)
    ),
}
_NAMES = {name.lower(): name for name in _FUNCTIONS}


# -- attributes ------------------------------------------------------------------------------------


def gates_of(op: str) -> int:
    """How many gates a layer of that op has."""
    return _CELLS[op].gates


def directions_of(attrs: Attrs) -> tuple[bool, ...]:
    """For each direction whether it goes backwards (ShapeError where there is no such one)."""
    return _DIRECTIONS[text(attrs, "direction", _DIRECTIONS)]


def activations_of(op: str, attrs: Attrs) -> list[tuple[Activation, ...]]:
    """The activations of each direction. Parameters are dealt to those that have such, in order.

    Raises:
        ShapeError: there is no such activation, or not one for each place.
        NotCovered: an activation without a default of its parameter is not given one.
    """
    default, count = _CELLS[op].activations, len(directions_of(attrs))
    names = _texts(attrs, "activations") or default * count
    if op == "RNN" and len(names) == 2:  # ONNX's default, whatever the directions
        names = names[:count]
    if len(names) != len(default) * count:
        raise ShapeError(
            f"activations must be {len(default) * count}, {len(default)} a direction, found {len(names)}"
        )
    given = [iter(_numbers(attrs, name)) for name in ("activation_alpha", "activation_beta")]
    found = []
    for name in names:
        known = _NAMES.get(name.lower())
        if known is None:
            raise ShapeError(f"there is no activation {name!r}")
        values = [
            next(source, parameter)
            for source, parameter in zip(given, _FUNCTIONS[known].parameters, strict=False)
        ]
        if None in values:
            raise not_covered(f"{known} without alpha and beta")
        found.append(Activation(known, *(value for value in values if value is not None)))
    return [tuple(found[at : at + len(default)]) for at in range(0, len(found), len(default))]


def _texts(attrs: Attrs, name: str) -> tuple[str, ...]:
    value = attrs[name]
    if not isinstance(value, tuple) or not all(isinstance(v, str) for v in value):
        raise ShapeError(f"attribute {name} must be texts, found {value!r}")
    return tuple(v for v in value if isinstance(v, str))


def _numbers(attrs: Attrs, name: str) -> tuple[float, ...]:
    value = attrs[name]
    if not isinstance(value, tuple) or not all(isinstance(v, int | float) for v in value):
        raise ShapeError(f"attribute {name} must be numbers, found {value!r}")
    return tuple(float(v) for v in value if isinstance(v, int | float))


def _clip_of(attrs: Attrs) -> float | None:
    clip = None if attrs["clip"] is None else number(attrs, "clip")
    if clip is not None and not clip >= 0:
        raise ShapeError(f"clip must not be negative, found {clip}")
    return clip


# -- shapes ----------------------------------------------------------------------------------------


def _fits(call: Call, index: int, *expected: Dim) -> None:
    """Holds an input, where it is there, to a shape (ShapeError)."""
    if not call.has(index) or call.type(index).shape is None:
        return
    found = call.rank(index, len(expected))
    if any(dims.differ(f, e) for f, e in zip(found, expected, strict=True)):
        shown = ", ".join(map(str, expected))
        raise ShapeError(f"{call.name(index)} must be [{shown}], found {call.type(index)}")


def _times(dim: Dim, count: int) -> Dim:
    return dim * count if isinstance(dim, int) else dims.UNKNOWN


def _shapes(op: str, call: Call) -> list[Shape]:
    """Of y, y_h, and of LSTM y_c."""
    directions, gates = len(directions_of(call.attrs)), gates_of(op)
    if flag(call.attrs, "layout"):
        raise not_covered("layout 1")  # the frontend writes it as transpositions
    activations_of(op, call.attrs)
    _clip_of(call.attrs)
    names = [param.name for param in call.params]
    at = names.index
    steps, batch, inputs = call.rank(0, 3)
    stated = integer(call.attrs, "hidden_size")
    if stated < 0:
        raise ShapeError(f"hidden_size must be positive, found {stated}")
    hidden: Dim = stated or call.rank(at("r"), 3)[2]
    _fits(call, at("w"), directions, _times(hidden, gates), inputs)
    _fits(call, at("r"), directions, _times(hidden, gates), hidden)
    _fits(call, at("b"), directions, _times(hidden, 2 * gates))
    _fits(call, at("sequence_lens"), batch)
    state = (directions, batch, hidden)
    _fits(call, at("initial_h"), *state)
    if op == "LSTM":
        _fits(call, at("initial_c"), *state)
        _fits(call, at("p"), directions, _times(hidden, 3))
    return [(steps, directions, batch, hidden), *[state] * (2 if op == "LSTM" else 1)]


# -- arithmetic ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """A layer on arrays; each direction can be computed by itself.

    Attributes:
        op: `LSTM`, `GRU` or `RNN`.
        attrs: complete attributes of its row.
        x: [T, N, I].
        w, r: [D, G*H, I] and [D, G*H, H].
        b: [D, 2*G*H], those of w before those of r; None: 0.
        lens: [N], how many steps each sequence has; None: T.
        h, c: [D, N, H], states in front of the first step; None: 0.
        p: [D, 3*H], peepholes of i, o and f.
    """

    op: str
    attrs: Attrs
    x: A
    w: A
    r: A
    b: A | None = None
    lens: A | None = None
    h: A | None = None
    c: A | None = None
    p: A | None = None

    def direction(self, d: int, y: A, rows: A | None = None) -> tuple[A, ...]:
        """Computes direction number `d` into y [T, N, H], and returns its last states, each [N, H];
        `rows`: memory for the products, [T*N, G*H].

        Raises:
            ValueError: a length is negative, or more than T.
        """
        cell, pre = self._cell(d), self._products(d, rows)
        steps, batch, _ = self.x.shape
        states = cell.states(batch, *(None if s is None else s[d] for s in (self.h, self.c)))
        lens = self._lengths(steps)
        backwards = directions_of(self.attrs)[d]
        for t in range(steps - 1, -1, -1) if backwards else range(steps):
            new = cell.step(pre[t], states)
            if lens is None:
                y[t] = new[0]
            else:  # a sequence that has ended, or not begun, keeps its state
                active = (t < lens)[:, None]
                new = tuple(np.where(active, n, s) for n, s in zip(new, states, strict=True))
                y[t] = np.where(active, new[0], 0)
            states = new
        if lens is not None:  # as ONNX Runtime has it
            states = tuple(np.where((lens > 0)[:, None], s, 0) for s in states)
        return states

    def _lengths(self, steps: int) -> A | None:
        lens = self.lens
        if lens is not None and ((lens < 0) | (lens > steps)).any():
            raise ValueError(f"sequence_lens must be from 0 to {steps}")
        return None if lens is None or bool((lens == steps).all() and steps) else lens

    def _products(self, d: int, rows: A | None) -> A:
        """The products of x with all its biases, [T, N, G*H]."""
        steps, batch, inputs = self.x.shape
        rows = np.matmul(self.x.reshape(steps * batch, inputs), self.w[d].T, out=rows)
        if self.b is not None:
            rows += self._biases(d)[0]
        return rows.reshape(steps, batch, -1)

    def _biases(self, d: int) -> tuple[A, A | None]:
        """What is added in front of all steps; and of a GRU that is linear before reset, what is
        added to the product with the hidden state of gate h.
        """
        assert self.b is not None
        of_w, of_r = np.split(self.b[d], 2)
        if not self._is_linear_before_reset:
            return of_w + of_r, None
        apart = of_r.size // 3 * 2
        joined = of_w.copy()
        joined[:apart] += of_r[:apart]
        return joined, of_r[apart:]

    @property
    def _is_linear_before_reset(self) -> bool:
        return self.op == "GRU" and flag(self.attrs, "linear_before_reset")

    def _cell(self, d: int) -> _Step:
        activations, clip = activations_of(self.op, self.attrs)[d], _clip_of(self.attrs)
        r = self.r[d]
        if self.op == "LSTM":
            p = None if self.p is None else np.split(self.p[d], 3)
            return _Lstm(r, activations, clip, p, flag(self.attrs, "input_forget"))
        if self.op == "RNN":
            return _Rnn(r, activations, clip)
        if not self._is_linear_before_reset:
            return _Gru(r, activations, clip)
        bias = None if self.b is None else self._biases(d)[1]
        return _GruLinearBeforeReset(r, activations, clip, bias)


@dataclass(frozen=True)
class _Step:
    """One step of a layer in one direction: r is [G*H, H]."""

    r: A
    activations: tuple[Activation, ...]
    clip: float | None

    @property
    def hidden(self) -> int:
        return int(self.r.shape[1])

    def states(self, batch: int, *given: A | None) -> tuple[A, ...]:
        """The states in front of the first step."""
        return (self._state(batch, given[0]),)

    def step(self, pre: A, states: tuple[A, ...]) -> tuple[A, ...]:
        """The states behind one step.

        Args:
            pre: products of the input, with biases, [N, G*H].
            states: in front of it: h, and of LSTM c.
        """
        raise NotImplementedError

    def _state(self, batch: int, given: A | None) -> A:
        return np.zeros((batch, self.hidden), self.r.dtype) if given is None else given

    def _act(self, index: int, x: A) -> A:
        if self.clip is not None:
            bound = x.dtype.type(self.clip)
            x = np.clip(x, -bound, bound)
        return self.activations[index](x)


class _Rnn(_Step):
    """h = f(x*W + h*R)."""

    def step(self, pre: A, states: tuple[A, ...]) -> tuple[A, ...]:
        return (self._act(0, pre + states[0] @ self.r.T),)


class _Gru(_Step):
    """h = (1 - z)*g(x*W + (r*h)*R) + z*h."""

    def step(self, pre: A, states: tuple[A, ...]) -> tuple[A, ...]:
        (h,), split = states, 2 * self.hidden
        z, r = np.split(self._act(0, pre[:, :split] + h @ self.r[:split].T), 2, axis=1)
        new = self._act(1, pre[:, split:] + self._reset(h, r, self.r[split:]))
        return ((1 - z) * new + z * h,)

    def _reset(self, h: A, r: A, weights: A) -> A:
        found: A = (r * h) @ weights.T
        return found


@dataclass(frozen=True)
class _GruLinearBeforeReset(_Gru):
    """h = (1 - z)*g(x*W + r*(h*R + bias)) + z*h."""

    bias: A | None = None

    def _reset(self, h: A, r: A, weights: A) -> A:
        product: A = h @ weights.T
        return r * (product if self.bias is None else product + self.bias)


@dataclass(frozen=True)
class _Lstm(_Step):
    """c = f*c + i*g, h = o * h(c)."""

    p: Sequence[A] | None = None
    input_forget: bool = False

    def states(self, batch: int, *given: A | None) -> tuple[A, ...]:
        return self._state(batch, given[0]), self._state(batch, given[1])

    def step(self, pre: A, states: tuple[A, ...]) -> tuple[A, ...]:
        h, c = states
        gates, size = pre + h @ self.r.T, self.hidden
        if self.p is None and not self.input_forget:
            i, o, f = np.split(self._act(0, gates[:, : 3 * size]), 3, axis=1)
            c = f * c + i * self._act(1, gates[:, 3 * size :])
            return o * self.activations[2](c), c
        i, o, f, g = np.split(gates, 4, axis=1)
        if self.p is not None:
            i, f = i + self.p[0] * c, f + self.p[2] * c
        i = self._act(0, i)
        f = 1 - i if self.input_forget else self._act(0, f)
        c = f * c + i * self._act(1, g)
        o = self._act(0, o if self.p is None else o + self.p[1] * c)
        return o * self.activations[2](c), c


def _compute(op: str, *arguments: A | Attrs | None) -> tuple[A, ...]:
    """All directions of a layer: y, y_h, and of LSTM y_c."""
    *arrays, attrs = arguments
    assert isinstance(attrs, Mapping)
    dtype = arrays[0].dtype  # type: ignore[union-attr]
    given = [
        a.astype(np.float32) if isinstance(a, np.ndarray) and a.dtype == np.float16 else a
        for a in arrays
    ]
    x, w, r, b, lens, h, *further = given
    layer = Layer(op, attrs, x, w, r, b, lens, h, *further)  # type: ignore[arg-type]
    (steps, batch, _), hidden = layer.x.shape, layer.r.shape[2]
    y = np.empty((steps, layer.w.shape[0], batch, hidden), layer.x.dtype)
    states = [layer.direction(d, y[:, d]) for d in range(y.shape[1])]
    found = (y, *(np.stack(each) for each in zip(*states, strict=True)))
    return tuple(a.astype(dtype, copy=False) for a in found)


def _types(op: str) -> Callable[[Call], tuple[DType, ...]]:
    return lambda call: (call.type(0).dtype,) * (3 if op == "LSTM" else 2)


_COMMON = {
    "activation_alpha": (),
    "activation_beta": (),
    "activations": (),
    "clip": None,
    "direction": "forward",
    "hidden_size": 0,
    "layout": 0,
}


def _rows() -> Iterator[OpSpec]:
    inputs = "x:F w:F r:F b:F? sequence_lens:S? initial_h:F?"
    for op, doc, more, attrs in (
        ("LSTM", "A layer of long short-term memory.", " initial_c:F? p:F?", {"input_forget": 0}),
        ("GRU", "A layer of gated recurrent units.", "", {"linear_before_reset": 0}),
        (
            "RNN",
            "A layer whose hidden state is f(x*W + h*R).",
            "",
            {"activations": ("Tanh", "Tanh")},
        ),
    ):
        yield row(
            op,
            doc,
            inputs + more,
            attrs={**_COMMON, **attrs},
            types={"S": frozenset({DType.S32})},
            shape=partial(_shapes, op),
            result=_types(op),
            compute=partial(_compute, op),
            outputs=("y", "y_h", "y_c") if op == "LSTM" else ("y", "y_h"),
            primitive="rnn",
        )


RECURRENT: tuple[OpSpec, ...] = tuple(_rows())
