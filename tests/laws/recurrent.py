"""Random recurrent networks: one or two layers of any cell, with any of what ONNX allows around
them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from laws.layouts import Case
from onnx import NodeProto, TensorProto, helper
from support.onnx_cases import model, node

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_BOUNDED = ("Tanh", "Sigmoid", "HardSigmoid", "Softsign")

# Gates are smooth, weights small enough that errors shrink from step to step: what remains is the
# rounding of sums of up to 100 products and of the approximations of exp and tanh, a few ulp of 1
# each in ONNX Runtime, oneDNN and NumPy.
_ERROR = 1e-5


_ONE_CODE = 0.01
"""By how much a code of the hidden state that falls to the other side of a tie may move a layer of
DynamicQuantizeLSTM: 2/255 times its weights, which are about 0.7 here, a few steps long.
"""


class _Draw:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.feeds: dict[str, np.ndarray[Any, Any]] = {}
        self.outputs: list[str] = []
        self.steps, self.batch = self.below(1, 12), self.pick(1, 1, 2, 3, 5)

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def yes(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def below(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
        return (self.rng.normal(size=shape) * scale).astype(np.float32)

    def constant(self, name: str, array: np.ndarray[Any, Any]) -> str:
        self.constants[name] = array
        return name

    def given(self, name: str, array: np.ndarray[Any, Any]) -> str:
        """A constant, or an input of the model."""
        if self.yes():
            return self.constant(name, array)
        self.feeds[name] = array
        return name

    def layer(self, number: int, x: str, inputs: int) -> tuple[str, int]:
        """A layer behind a value [T, N, inputs]; what follows reads [T, N, size]."""
        op, directions, hidden = self.pick(*GATES), self.pick(1, 1, 2), self.below(1, 24)
        gates = GATES[op]
        attrs: dict[str, Any] = {"hidden_size": hidden}
        if directions == 2:
            attrs["direction"] = "bidirectional"
        elif self.yes(0.3):
            attrs["direction"] = "reverse"
        if self.yes(0.1):
            attrs["clip"] = 0.5
        if op == "GRU" and self.yes():
            attrs["linear_before_reset"] = 1
        if op == "LSTM" and self.yes(0.1):
            attrs["input_forget"] = 1
        if op == "RNN" and self.yes():
            attrs["activations"] = [self.pick("Tanh", "Relu")] * directions
        elif self.yes(0.1):
            count = {"LSTM": 3, "GRU": 2, "RNN": 1}[op] * directions
            named = ("Tanh", "Relu", "Sigmoid") if op == "RNN" else _BOUNDED
            attrs["activations"] = [self.pick(*named) for _ in range(count)]
        scale = 0.7 / np.sqrt(hidden)
        rows = (directions, gates * hidden)
        args = [
            x,
            self.constant(f"w{number}", self.normal(*rows, inputs, scale=0.7 / np.sqrt(inputs))),
            self.constant(f"r{number}", self.normal(*rows, hidden, scale=scale)),
            self.yes(0.8)
            and self.constant(f"b{number}", self.normal(directions, 2 * rows[1], scale=0.3)),
            self.yes(0.2) and self.given(f"lens{number}", self._lens()),
            self.yes(0.3) and self.given(f"h{number}", self._state(directions, hidden)),
        ]
        if op == "LSTM":
            args += [
                self.yes(0.3) and self.given(f"c{number}", self._state(directions, hidden)),
                self.yes(0.2)
                and self.constant(f"p{number}", self.normal(directions, 3 * hidden, scale=0.3)),
            ]
        names = [f"y{number}", f"last_h{number}", f"last_c{number}"][: 3 if op == "LSTM" else 2]
        named = [name if self.yes(0.6) else "" for name in names]
        named[0] = names[0]
        self.nodes.append(node(op, [arg or "" for arg in args], named, **attrs))
        self.outputs += [name for name in named[1:] if name]
        return self._joined(names[0], number), hidden * directions

    def _lens(self) -> np.ndarray[Any, Any]:
        if self.yes(0.3):
            return np.full(self.batch, self.steps, np.int32)
        return self.rng.integers(0, self.steps + 1, self.batch).astype(np.int32)

    def _state(self, directions: int, hidden: int) -> np.ndarray[Any, Any]:
        return self.normal(directions, self.batch, hidden)

    def _joined(self, y: str, number: int) -> str:
        """[T, D, N, H] as [T, N, D*H], as exporters write it."""
        shape = self.constant("shape", np.array([0, 0, -1]))
        self.nodes.append(node("Transpose", [y], [f"t{number}"], perm=[0, 2, 1, 3]))
        self.nodes.append(node("Reshape", [f"t{number}", shape], [f"joined{number}"]))
        if self.yes(0.3):
            self.outputs.append(y)
        return f"joined{number}"


def draw_layers(seed: int) -> Case:
    """A model with its feeds."""
    draw = _Draw(seed)
    inputs = draw.below(1, 20)
    batch_first = draw.yes(0.3)
    sizes = (draw.batch, draw.steps) if batch_first else (draw.steps, draw.batch)
    draw.feeds["x"] = draw.normal(*sizes, inputs)
    x, size = "x", inputs
    if batch_first:
        draw.nodes.append(node("Transpose", ["x"], ["turned"], perm=[1, 0, 2]))
        x = "turned"
    for number in range(draw.pick(1, 1, 2)):
        x, size = draw.layer(number, x, size)
    if batch_first:
        draw.nodes.append(node("Transpose", [x], ["back"], perm=[1, 0, 2]))
        x = "back"
    outputs = [*draw.outputs, x]
    symbols = dict(
        zip(("x",), [(*(("N", "T") if batch_first else ("T", "N")), inputs)], strict=True)
    )
    shapes = {
        name: list(symbols.get(name, array.shape)) if draw.yes() else list(array.shape)
        for name, array in draw.feeds.items()
    }
    types = {
        name: TensorProto.INT32 for name, array in draw.feeds.items() if array.dtype == np.int32
    }
    proto = model(draw.nodes, inputs=shapes, outputs=outputs, constants=draw.constants, types=types)
    errors = dict.fromkeys(outputs, _ERROR)
    return Case(proto, draw.feeds, errors, outputs, draw.pick(1, 2))


def draw_read_steps(seed: int) -> Case:
    """A model of which a few steps of the last layer are read, in front of what joins directions or
    behind it, and a relu or a product behind that.
    """
    draw = _Draw(seed)
    inputs = draw.below(1, 20)
    draw.feeds["x"] = draw.normal(draw.steps, draw.batch, inputs)
    x, size = "x", inputs
    count = draw.pick(1, 1, 2)
    for number in range(count):
        x, size = draw.layer(number, x, size)
    outputs = [name for name in draw.outputs if draw.yes(0.1)]
    axis = 0
    if draw.yes(0.3):
        x = f"y{count - 1}"
    elif draw.yes(0.3):
        draw.nodes.append(node("Transpose", [x], ["back"], perm=[1, 0, 2]))
        x, axis = "back", 1
    symbolic = draw.yes()
    for number in range(draw.pick(1, 1, 1, 1, 2)):
        read = f"read{number}"
        if draw.yes(0.2) and not symbolic:
            start = draw.below(0, draw.steps)
            numbers = (start, draw.below(start + 1, draw.steps + 1), axis, draw.pick(1, 1, 2))
            given = [draw.constant(f"{read}/{n}", np.array([n])) for n in numbers]
            draw.nodes.append(node("Slice", [x, *given], [read]))
        else:
            index = draw.pick(0, 0, -1, -1, -1, draw.below(-draw.steps, draw.steps))
            index = np.array(index) if draw.yes(0.7) else np.array([index])
            given = [draw.constant(f"{read}/index", index)]
            draw.nodes.append(node("Gather", [x, *given], [read], axis=axis))
        if draw.yes(0.6):
            draw.nodes.append(node("Relu", [read], [f"relu{number}"]))
            read = f"relu{number}"
        outputs.append(read)
    shape = ["T" if symbolic else draw.steps, draw.pick("N", draw.batch), inputs]
    shapes = {name: shape if name == "x" else list(a.shape) for name, a in draw.feeds.items()}
    types = {name: TensorProto.INT32 for name, a in draw.feeds.items() if a.dtype == np.int32}
    proto = model(draw.nodes, inputs=shapes, outputs=outputs, constants=draw.constants, types=types)
    return Case(proto, draw.feeds, dict.fromkeys(outputs, _ERROR), outputs, draw.pick(1, 2))


def draw_dynamic(seed: int) -> Case:
    """One layer of DynamicQuantizeLSTM: weights of u8 or s8, a scale for each direction or for each
    column.
    """
    draw = _Draw(seed)
    directions, hidden, inputs = draw.pick(1, 2), draw.below(1, 24), draw.below(1, 20)
    kind, by_column = draw.pick(np.uint8, np.int8), draw.yes()
    args = {"x": "x"}
    draw.feeds["x"] = draw.normal(draw.steps, draw.batch, inputs, scale=2)
    for name, size in (("w", inputs), ("r", hidden)):
        data = draw.normal(directions, size, 4 * hidden, scale=0.7 / np.sqrt(size))
        codes, scale, zero = _codes(data, kind, draw.pick(110, 128), by_column=by_column)
        for role, array in ((name, codes), (f"{name}_scale", scale), (f"{name}_zero", zero)):
            hold = draw.given if draw.yes(0.1) else draw.constant
            args[role] = hold(role, array)
    state = (directions, draw.batch, hidden)
    for role, chance, make in (
        ("lens", 0.3, draw._lens),
        ("h", 0.4, lambda: draw.normal(*state)),
        ("c", 0.4, lambda: draw.normal(*state)),
    ):
        args[role] = draw.given(role, make()) if draw.yes(chance) else ""
    for role, chance, size in (("b", 0.8, 8 * hidden), ("p", 0.2, 3 * hidden)):
        constant = draw.normal(directions, size, scale=0.3)
        args[role] = draw.constant(role, constant) if draw.yes(chance) else ""
    attrs: dict[str, Any] = {"hidden_size": hidden}
    if directions == 2:
        attrs["direction"] = "bidirectional"
    elif draw.yes(0.3):
        attrs["direction"] = "reverse"
    if draw.yes(0.1):
        attrs["clip"] = 0.5
    if draw.yes(0.1):
        attrs["input_forget"] = 1
    order = ("x", "w", "r", "b", "lens", "h", "c", "p", "w_scale", "w_zero", "r_scale", "r_zero")
    outputs = ["y", "last_h", "last_c"]
    layer = node(
        "DynamicQuantizeLSTM",
        [args[role] for role in order],
        outputs,
        domain="com.microsoft",
        **attrs,
    )
    proto = model(
        [layer],
        inputs={name: list(array.shape) for name, array in draw.feeds.items()},
        outputs=outputs,
        constants=draw.constants,
        types={
            name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in draw.feeds.items()
        },
        domains={"com.microsoft": 1},
    )
    return Case(proto, draw.feeds, dict.fromkeys(outputs, _ONE_CODE), outputs, draw.pick(1, 2))


def _codes(
    data: np.ndarray[Any, Any], kind: type[np.generic], zero: int, *, by_column: bool
) -> tuple[np.ndarray[Any, Any], ...]:
    """Codes, scales and zero points (0 of s8), [D, 4H] of them or [D]."""
    axes, zero = (1,) if by_column else (1, 2), 0 if kind is np.int8 else zero
    scale = (np.abs(data).max(axes) / 110 + 1e-6).astype(np.float32)
    codes = np.rint(data / scale.reshape(data.shape[0], 1, -1)) + zero
    return codes.astype(kind), scale, np.full(scale.shape, zero, kind)
