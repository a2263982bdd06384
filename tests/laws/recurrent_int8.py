"""Random recurrent layers in int8, as plans: the model's language has none."""

from __future__ import annotations

from typing import Any

import numpy as np

from fqfuse.ir.ops import OPS
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.attributes import PrimitiveAttr, Scale
from fqfuse.plan.types import Plan, Step

Feeds = dict[str, np.ndarray[Any, Any]]


def draw_int8(seed: int) -> tuple[Plan, Feeds]:
    """A plan of one layer of LSTM or GRU on codes of u8, and what to feed."""
    rng = np.random.default_rng(seed)

    def pick(*options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    op, directions, batch = pick("LSTM", "GRU"), pick(1, 2), pick(1, 2, 3, 7)
    steps, inputs, hidden = (int(rng.integers(1, most)) for most in (9, 40, 40))
    rows, states = (4, 2) if op == "LSTM" else (3, 1)
    rows *= hidden
    most, by_row = pick(63, 127), pick(False, True)
    constants = {
        name: rng.integers(-most, most + 1, (directions, rows, size)).astype(np.int8)
        for name, size in (("w", inputs), ("r", hidden))
    }
    args = [("src", "x"), ("w", "w"), ("r", "r")]
    values = {"x": TensorType(DType.U8, (steps, batch, inputs))}
    feeds = {"x": rng.integers(0, 256, (steps, batch, inputs)).astype(np.uint8)}
    if rng.random() < 0.7:
        constants["b"] = (rng.normal(size=(directions, 2 * rows)) * 0.5).astype(np.float32)
        args.append(("b", "b"))
    state = (directions, batch, hidden)
    for role in ("initial_h", "initial_c")[:states]:
        if rng.random() < 0.5:
            args.append((role, role))
            values[role] = TensorType(DType.F32, state)
            feeds[role] = rng.uniform(-1, 1, state).astype(np.float32)
    outputs = ["y", *(name if rng.random() < 0.6 else "" for name in ("h", "c")[:states])]
    values["y"] = TensorType(pick(DType.U8, DType.F32), (steps, *state))
    values |= {name: TensorType(DType.F32, state) for name in outputs[1:] if name}
    direction = "bidirectional" if directions == 2 else pick("forward", "reverse")
    factors = rng.uniform(60, 300, rows if by_row else 1).astype(np.float32).tolist()
    attr = PrimitiveAttr(
        rnn_data_qparams=Scale(pick((127.0, 128.0), (60.0, 100.0), (30.0, 128.0))),
        rnn_weights_qparams=Scale(tuple(factors), 24 if by_row else 0),
    )
    params = OPS[op].complete({"direction": direction, "hidden_size": hidden})
    step = Step("layer", "rnn", op, tuple(args), tuple(outputs), params, attr)
    named = tuple(filter(None, outputs))
    given = tuple(name for name in values if name in feeds)
    target = pick("onednn-v2", "onednn-v3")
    return Plan("layer", target, given, named, values, constants, (step,)), feeds
