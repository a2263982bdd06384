"""Cases of recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .harness import Case, case, normal

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
LENS = np.asarray([5, 2, 0], np.int32)


def layer(
    op: str,
    directions: int = 1,
    *,
    bias: bool = True,
    lens: np.ndarray | None = None,
    states: bool = False,
    peepholes: bool = False,
    dtype: Any = np.float32,
    **attrs: Any,
) -> Case:
    """5 steps of 3 sequences of 4 inputs, 6 hidden values."""
    gates, hidden = GATES[op], 6
    state = normal(directions, 3, hidden, dtype=dtype) if states else None
    inputs = [
        normal(5, 3, 4, dtype=dtype),
        normal(directions, gates * hidden, 4, dtype=dtype, scale=0.5),
        normal(directions, gates * hidden, hidden, dtype=dtype, scale=0.5),
        normal(directions, 2 * gates * hidden, dtype=dtype) if bias else None,
        lens,
        state,
    ]
    if op == "LSTM":
        p = normal(directions, 3 * hidden, dtype=dtype) if peepholes else None
        inputs += [None if state is None else -state, p]
    if directions == 2:
        attrs["direction"] = "bidirectional"
    oracle = "ort" if dtype == np.float32 else "reference"
    return case(op, *inputs, hidden_size=hidden, oracle=oracle, **attrs)


CASES: tuple[Case, ...] = (
    *(layer(op) for op in GATES),
    *(layer(op, 2, states=True, lens=LENS) for op in GATES),
    *(layer(op, bias=False, states=True, direction="reverse") for op in GATES),
    *(layer(op, lens=LENS, direction="reverse", clip=0.5) for op in GATES),
    *(layer(op, dtype=np.float64, direction="reverse") for op in GATES),
    layer("LSTM", peepholes=True, states=True, clip=1.0),
    layer("LSTM", 2, peepholes=True, input_forget=1),
    layer("GRU", 2, linear_before_reset=1),
    layer("GRU", bias=False, linear_before_reset=1),
    layer("RNN", 2, activations=("Relu", "Sigmoid")),
    *(
        layer("RNN", activations=(name,), activation_alpha=(0.3,), activation_beta=(0.7,))
        for name in ("Affine", "ScaledTanh", "HardSigmoid", "LeakyRelu", "ThresholdedRelu", "Elu")
    ),
    layer("RNN", activations=("Softsign",)),
    layer("GRU", activations=("Tanh", "softplus")),
    layer(
        "LSTM",
        activations=("HardSigmoid", "ScaledTanh", "Tanh"),
        activation_alpha=(0.3, 1.5),
        activation_beta=(0.4, 0.9),
    ),
    layer(
        "GRU",
        activations=("HardSigmoid", "Softsign"),
        activation_alpha=(0.3,),
        activation_beta=(0.4,),
    ),
)
