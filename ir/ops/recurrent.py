"""Rows of recurrent layers, LSTM, GRU and RNN, and their arithmetic in floats.

Sizes: T steps, N sequences, I inputs, H hidden values, D directions; G gates (4, 3, 1), in ONNX's order: i o f c of LSTM, z r h of
GRU. Order of the floats: a layer's products over all steps are one matrix product, to which the biases are added (their sum first); at each
step the product with the hidden state is added to that, then peepholes, clip and activations apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..types import Dim, DType, Shape
from . import dims
from .activation import ACTIVATION
from .quantization import dynamic_range
from .rows import A, Call, flag, integer, not_covered, number, row, text
from .spec import Attrs, OpSpec, ShapeError

DYNAMIC = "DynamicQuantizeLSTM"

Lost = Callable[[A, A], None]
"""Adds to sums of products [N, G*H] what an instruction set makes of them otherwise than exact ones, given
the codes of u8 that were multiplied, [N, K].
"""

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
    lstm = _CELLS[op].states == 2
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
    rows = _times(hidden := stated or call.rank(at("r"), 3)[1 if op == DYNAMIC else 2], gates)
    if op == DYNAMIC:
        _fits(call, at("w"), directions, inputs, rows)
        _fits(call, at("r"), directions, hidden, rows)
        for name in _PARAMETERS:
            each = call.rank(at(name), (1, 2))
            _fits(call, at(name), directions, *[rows] * (len(each) - 1))
    else:
        _fits(call, at("w"), directions, rows, inputs)
        _fits(call, at("r"), directions, rows, hidden)
    _fits(call, at("b"), directions, _times(hidden, 2 * gates))
    if op == "AUGRU":
        _fits(call, at("attention"), steps, batch, 1)
    else:
        _fits(call, at("sequence_lens"), batch)
    state = (directions, batch, hidden)
    _fits(call, at("initial_h"), *state)
    if lstm:
        _fits(call, at("initial_c"), *state)
        _fits(call, at("p"), directions, _times(hidden, 3))
    return [(steps, directions, batch, hidden), *[state] * (2 if lstm else 1)]


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
        attention: [T, N, 1] of AUGRU.
        projection: [D, P, H] of LSTM, which makes hidden states of P values of those of the cell;
            then r is [D, G*H, P], and h [D, N, P]. Primitives alone have it, no row.
        stored: rounds what becomes of hidden states where they are kept in another type: each state, of
            a projection its source, and r*h of GRU. None: it stays as it is. Primitives alone.
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
    attention: A | None = None
    projection: A | None = None
    stored: Callable[[A], A] | None = None

    def direction(self, d: int, y: A, rows: A | None = None) -> tuple[A, ...]:
        """Computes direction number `d` into y [T, N, H] (P with a projection), and returns its last states, each [N, H];
        `rows`: memory for the products, [T*N, G*H].

        Raises:
            ValueError: a length is negative, or more than T.
        """
        step, pre = partial(_CELLS[self.op].step, self._read(d)), self._products(d, rows)
        steps, states = self.x.shape[0], self._states(d)
        lens = self._lengths(steps)
        backwards = directions_of(self.attrs)[d]
        for t in range(steps - 1, -1, -1) if backwards else range(steps):
            new = step(t, pre[t], states)
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
        if not steps:  # all of length 0, whether or not the model says it
            return np.zeros(self.x.shape[1], np.int32)
        return None if lens is None or bool((lens == steps).all()) else lens

    def _products(self, d: int, rows: A | None) -> A:
        """The products of x with all its biases, [T, N, G*H]."""
        steps, batch, inputs = self.x.shape
        rows = np.matmul(self.x.reshape(steps * batch, inputs), self.w[d].T, out=rows)
        if self.b is not None:
            rows += self._biases(d)[0]
        return rows.reshape(steps, batch, self.w.shape[1])

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
        return "linear_before_reset" in self.attrs and flag(self.attrs, "linear_before_reset")

    def _states(self, d: int) -> tuple[A, ...]:
        """The states in front of the first step: h, and of LSTM c."""
        shape = self.x.shape[1], min(self.r.shape[1:])
        return tuple(
            np.zeros(shape, self.x.dtype) if given is None else given[d]
            for given in (self.h, self.c)[: _CELLS[self.op].states]
        )

    def _read(self, d: int) -> _Read:
        return _Read(
            self.r[d],
            activations_of(self.op, self.attrs)[d],
            _clip_of(self.attrs),
            None if self.b is None else self._biases(d)[1],
            None if self.p is None else np.split(self.p[d], 3),
            self.attention,
            None if self.projection is None else self.projection[d],
            stored=self.stored,
            linear_before_reset=self._is_linear_before_reset,
            input_forget="input_forget" in self.attrs and flag(self.attrs, "input_forget"),
        )


@dataclass(frozen=True)
class _Read:
    """What the steps of a layer read in one direction.

    Attributes:
        r: [G*H, H].
        activations: those of its gates and states.
        clip: the largest magnitude in front of an activation of a gate.
        bias: what is added to products with the hidden state: those of gate h of a GRU that is
            linear before reset, all of DynamicQuantizeLSTM.
        p: peepholes of i, o and f, each [H].
        attention: [T, N, 1].
        projection: [P, H].
        scale: of whole numbers in r, [] or [G*H].
        lost: what changes the sums of their products; None: they are exact.
        stored: as `Layer` has it.
        linear_before_reset, input_forget: as ONNX has them.
    """

    r: A
    activations: tuple[Activation, ...]
    clip: float | None
    bias: A | None
    p: Sequence[A] | None
    attention: A | None
    projection: A | None = None
    scale: A | None = None
    lost: Lost | None = None
    stored: Callable[[A], A] | None = None
    linear_before_reset: bool = False
    input_forget: bool = False

    def act(self, index: int, x: A) -> A:
        if self.clip is not None:
            bound = x.dtype.type(self.clip)
            x = np.clip(x, -bound, bound)
        return self.activations[index](x)

    def product(self, h: A) -> A:
        """h by r; of whole numbers in r, h is quantized first."""
        return h @ self.r.T if self.scale is None else _product(h, self.r.T, self.scale, self.lost)

    def kept(self, h: A) -> A:
        return h if self.stored is None else self.stored(h)

    def projected(self, h: A) -> A:
        h = self.kept(h)
        return h if self.projection is None else self.kept(h @ self.projection.T)


def _rnn(read: _Read, _t: int, pre: A, states: tuple[A, ...]) -> tuple[A, ...]:
    """h = f(x*W + h*R)."""
    return (read.kept(read.act(0, pre + states[0] @ read.r.T)),)


def _gru(read: _Read, t: int, pre: A, states: tuple[A, ...]) -> tuple[A, ...]:
    """h = (1 - z)*g(x*W + (r*h)*R) + z*h; linear before reset, r*(h*R + bias) in place of (r*h)*R;
    with an attention, (1 - attention)*z in place of z.
    """
    (h,), split = states, read.r.shape[0] // 3 * 2
    z, r = np.split(read.act(0, pre[:, :split] + h @ read.r[:split].T), 2, axis=1)
    weights = read.r[split:].T
    if read.linear_before_reset:
        product: A = h @ weights
        product = r * (product if read.bias is None else product + read.bias)
    else:
        product = read.kept(r * h) @ weights
    new = read.act(1, pre[:, split:] + product)
    if read.attention is not None:
        z = (1 - read.attention[t]) * z
    return (read.kept((1 - z) * new + z * h),)


def _lstm(read: _Read, _t: int, pre: A, states: tuple[A, ...]) -> tuple[A, ...]:
    """c = f*c + i*g, h = o * h(c)."""
    h, c = states
    size = c.shape[1]
    gates: A = pre + read.product(h)
    if read.bias is not None:
        gates = gates + read.bias
    if read.p is None and not read.input_forget:
        i, o, f = np.split(read.act(0, gates[:, : 3 * size]), 3, axis=1)
        c = f * c + i * read.act(1, gates[:, 3 * size :])
        return read.projected(o * read.activations[2](c)), c
    i, o, f, g = np.split(gates, 4, axis=1)
    if read.p is not None:
        i, f = i + read.p[0] * c, f + read.p[2] * c
    i = read.act(0, i)
    f = 1 - i if read.input_forget else read.act(0, f)
    c = f * c + i * read.act(1, g)
    o = read.act(0, o if read.p is None else o + read.p[1] * c)
    return read.projected(o * read.activations[2](c)), c


@dataclass(frozen=True)
class _Cell:
    """What tells the layers from each other.

    Attributes:
        gates: how many.
        states: how many.
        activations: the names of its default activations, of one direction.
        step: the states behind one step, given what it reads, its number, the products of the
            input with biases, [N, G*H], and the states in front of it.
    """

    gates: int
    states: int
    activations: tuple[str, ...]
    step: Callable[[_Read, int, A, tuple[A, ...]], tuple[A, ...]]


_CELLS = {
    "LSTM": _Cell(4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm),
    DYNAMIC: _Cell(4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm),
    "GRU": _Cell(3, 1, ("Sigmoid", "Tanh"), _gru),
    "AUGRU": _Cell(3, 1, ("Sigmoid", "Tanh"), _gru),
    "RNN": _Cell(1, 1, ("Tanh",), _rnn),
}


# -- quantized at run time -------------------------------------------------------------------------

_PARAMETERS = ("w_scale", "w_zero_point", "r_scale", "r_zero_point")


@dataclass(frozen=True)
class DynamicLayer(Layer):
    """A layer of DynamicQuantizeLSTM, as ONNX Runtime computes it: x is quantized once for all its
    steps, the hidden state at each step, for all sequences together; products of codes are exact.

    The sequences of a reverse layer begin together, at the ends of theirs, and what has ended is 0.

    Attributes:
        w, r: codes less their zero points, as `whole` gives them, [D, I, G*H] and [D, H, G*H].
        w_scale, r_scale: [D] or [D, G*H].
        lost: for w and r what changes the sums of their products, in each direction; None: they are
            exact.
    """

    w_scale: A | None = None
    r_scale: A | None = None
    lost: tuple[Sequence[Lost | None], Sequence[Lost | None]] | None = None

    def direction(self, d: int, y: A, rows: A | None = None) -> tuple[A, ...]:  # noqa: ARG002
        """See `Layer.direction`; it takes no memory for its products."""
        steps, batch, inputs = self.x.shape
        backwards, lens = directions_of(self.attrs)[d], self._lengths(steps)
        longest = steps if lens is None else int(lens.max(initial=0))
        x = self.x[:longest]
        assert self.w_scale is not None
        assert self.r_scale is not None
        lost = None if self.lost is None else self.lost[0][d]
        found = _product(x.reshape(longest * batch, inputs), self.w[d], self.w_scale[d], lost)
        pre = found.reshape(longest, batch, self.w.shape[2])
        step, states = partial(_CELLS[self.op].step, self._read(d)), self._states(d)
        if lens is None:
            for t in range(steps - 1, -1, -1) if backwards else range(steps):
                states = step(t, pre[t], states)
                y[t] = states[0]
            return states
        y[...] = 0
        every = np.arange(batch)
        kept = tuple(np.zeros_like(state) for state in states)
        for t in range(longest):
            active = np.asarray(lens > t)
            places = np.where(active, lens - 1 - t, t) if backwards else np.full(batch, t)
            new = step(t, pre[places, every], states)
            states = tuple(np.where(active[:, None], n, 0) for n in new)
            y[places[active], every[active]] = states[0][active]
            ends = np.asarray(lens == t + 1)[:, None]
            kept = tuple(np.where(ends, n, k) for n, k in zip(new, kept, strict=True))
        return kept

    def _read(self, d: int) -> _Read:
        assert self.r_scale is not None
        bias = None if self.b is None else self._biases(d)[0]
        lost = None if self.lost is None else self.lost[1][d]
        found = super()._read(d)
        return replace(found, r=self.r[d].T, scale=self.r_scale[d], lost=lost, bias=bias)


def whole(codes: A, zero_point: A) -> A:
    """Codes [D, K, G*H] less their zero points [D] or [D, G*H], in a type in which their sums with
    codes of 8 bits are exact.
    """
    zero = zero_point.astype(np.float32)
    found = codes.astype(np.float32) - (zero[:, None, None] if zero.ndim == 1 else zero[:, None])
    most = codes.shape[1] * 255 * np.abs(found).max(initial=0)
    return found if most < 1 << 24 else found.astype(np.float64)


def _product(x: A, weights: A, scale: A, lost: Lost | None = None) -> A:
    """x quantized as DynamicQuantizeLinear does, times whole weights."""
    if x.size == 0:
        return np.zeros((x.shape[0], weights.shape[1]), np.float32)
    step, zero = dynamic_range(x)
    low = -zero.astype(np.float32)
    codes = x / step
    np.clip(codes, low, low + np.float32(255), out=codes)
    np.rint(codes, out=codes)
    sums: A = codes.astype(weights.dtype, copy=False) @ weights
    if lost is not None:
        lost(codes - low, sums)
    product = sums.astype(np.float32, copy=False)
    product *= step * scale
    return product


def _compute_dynamic(
    x: A,
    w: A,
    r: A,
    w_scale: A,
    w_zero: A,
    r_scale: A,
    r_zero: A,
    *further: A | Attrs | None,
) -> tuple[A, ...]:
    *states, attrs = further
    assert isinstance(attrs, Mapping)
    b, lens, h, c, p = states
    decoded = whole(w, w_zero), whole(r, r_zero)
    layer = DynamicLayer(DYNAMIC, attrs, x, *decoded, b, lens, h, c, p)  # type: ignore[arg-type]
    return _all(replace(layer, w_scale=w_scale, r_scale=r_scale))


def _compute_attention(
    x: A, w: A, r: A, attention: A, b: A | None, h: A | None, attrs: Attrs
) -> tuple[A, ...]:
    return _all(Layer("AUGRU", attrs, x, w, r, b, h=h, attention=attention))


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
    found = _all(Layer(op, attrs, x, w, r, b, lens, h, *further))  # type: ignore[arg-type]
    return tuple(a.astype(dtype, copy=False) for a in found)


def _all(layer: Layer) -> tuple[A, ...]:
    """All directions of a layer."""
    (steps, batch, _), directions = layer.x.shape, layer.w.shape[0]
    y = np.empty((steps, directions, batch, min(layer.r.shape[1:])), layer.x.dtype)
    states = [layer.direction(d, y[:, d]) for d in range(directions)]
    return (y, *(np.stack(each) for each in zip(*states, strict=True)))


def _types(op: str) -> Callable[[Call], tuple[DType, ...]]:
    return lambda call: (call.type(0).dtype,) * (1 + _CELLS[op].states)


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
    yield row(
        DYNAMIC,
        "ONNX Runtime's layer of long short-term memory that quantizes its input and its hidden state at run time.",
        "x:X w:C r:D w_scale:X w_zero_point:E r_scale:X r_zero_point:G b:X? sequence_lens:S? initial_h:X? initial_c:X? p:X?",
        attrs={**_COMMON, "input_forget": 0},
        types={
            "X": frozenset({DType.F32}),
            "S": frozenset({DType.S32}),
            **dict.fromkeys("CDEG", frozenset({DType.U8, DType.S8, DType.F32})),
        },
        shape=partial(_shapes, DYNAMIC),
        result=_types(DYNAMIC),
        compute=_compute_dynamic,
        outputs=("y", "y_h", "y_c"),
        onnx=False,
        primitive="rnn",
    )
    yield row(
        "AUGRU",
        "A layer of gated recurrent units whose update gates an attention weakens.",
        "x:X w:X r:X attention:X b:X? initial_h:X?",
        attrs=_COMMON,
        types={"X": frozenset({DType.F32})},
        shape=partial(_shapes, "AUGRU"),
        result=_types("AUGRU"),
        compute=_compute_attention,
        outputs=("y", "y_h"),
        onnx=False,
        primitive="rnn",
    )
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
