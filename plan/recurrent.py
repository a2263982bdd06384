"""What oneDNN's recurrent primitives can say of an ONNX layer, and its weights in their order."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.ops.recurrent import DYNAMIC, Activation, activations_of, directions_of, gates_of
from ..ir.ops.spec import Attrs
from ..ir.rule import Refusal

RNN_ACTIVATIONS = {"Tanh": "tanh", "Relu": "relu", "Sigmoid": "logistic", "LeakyRelu": "relu"}
"""Activation of an RNN -> the eltwise algorithm that the primitive takes."""

_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (0, 1, 2), "AUGRU": (0, 1, 2), "RNN": (0,)}
"""For each gate of the primitive (LSTM: i f c o, GRU: u r o) which of ONNX's it is (i o f c, z r
h).
"""


def beyond_primitive(op: str, attrs: Attrs, roles: Collection[str]) -> Refusal | None:
    """What of a layer no recurrent primitive of the library does, or None.

    Args:
        op: `LSTM`, `GRU` or `RNN`.
        attrs: complete attributes of its row.
        roles: the arguments that it has.
    """
    if op == DYNAMIC:
        return Refusal(
            "oneDNN's LSTM takes the parameters of the hidden state at compile time: its int8 products run step by step",
            "parameters of the hidden state",
            "some for each step, from its range",
            "nothing to change: no quantizer gives the state constant parameters, and kernels of fqfuse's own take the steps",
        )
    if attrs["clip"] is not None:
        return Refusal(
            "oneDNN's recurrent primitives do not clip",
            "no clip",
            repr(attrs["clip"]),
            "export the layer without clip; it runs on NumPy meanwhile",
        )
    if op == "AUGRU" and any(directions_of(attrs)):
        return Refusal(
            "oneDNN's AUGRU goes forward only",
            "forward",
            str(attrs["direction"]),
            "nothing to change: the layer runs on NumPy",
        )
    if attrs.get("input_forget"):
        return Refusal(
            "oneDNN's LSTM has a forget gate of its own",
            "input_forget=0",
            "1",
            "export the layer with input_forget=0; it runs on NumPy meanwhile",
        )
    if "sequence_lens" in roles:
        return Refusal(
            "oneDNN's recurrent primitives go through all steps of every sequence",
            "no sequence_lens",
            "sequence_lens",
            "leave sequence_lens out where all sequences are whole; the layer runs on NumPy meanwhile",
        )
    found = activations_of(op, attrs)
    default = activations_of(op, {**attrs, "activations": ()})[0]
    one = len(set(found)) == 1
    if one and (found[0] == default or (op == "RNN" and found[0][0].name in RNN_ACTIVATIONS)):
        return None
    return Refusal(
        f"oneDNN's {op} has other activations",
        " or ".join(RNN_ACTIVATIONS) if op == "RNN" else _names(default),
        "; ".join(map(_names, found)),
        "export the layer with its default activations; it runs on NumPy meanwhile",
    )


def beyond_int8(op: str, attrs: Attrs, roles: Collection[str]) -> Refusal | None:
    """What of a layer no recurrent primitive of the library does in int8, or None; see
    `beyond_primitive`.
    """
    refusal = beyond_primitive(op, attrs, roles)
    if refusal is not None:
        return refusal
    if op not in ("LSTM", "GRU") or attrs.get("linear_before_reset"):
        what = "linear_before_reset=1" if op == "GRU" else op
        return Refusal(
            "oneDNN has LSTM and GRU in int8, the latter with the reset in front of its product",
            "LSTM, or GRU with linear_before_reset=0",
            what,
            "nothing to change: a layer of another kind stays in f32",
        )
    if "p" in roles:
        return Refusal(
            "oneDNN's LSTM in int8 has no peepholes",
            "no peepholes",
            "p",
            "nothing to change: a layer with peepholes stays in f32",
        )
    return None


def _names(activations: tuple[Activation, ...]) -> str:
    return ", ".join(activation.name for activation in activations)


def gates_first(op: str, array: NDArray[Any]) -> NDArray[Any]:
    """[D, G*H, ...] as [D, G, H, ...], with the gates in the primitive's order."""
    directions, rows = array.shape[:2]
    gates = gates_of(op)
    return array.reshape(directions, gates, rows // gates, *array.shape[2:])[:, _ORDER[op]]


def peepholes_first(array: NDArray[Any]) -> NDArray[Any]:
    """ONNX's peepholes [D, 3*H] of i o f as [D, 3, H] of i f o."""
    directions, rows = array.shape
    return np.asarray(array.reshape(directions, 3, rows // 3)[:, (0, 2, 1)])


def gates_last(op: str, array: NDArray[Any]) -> NDArray[Any]:
    """[D, G, H, ...] in the primitive's order as ONNX's [D, G*H, ...]."""
    directions, gates, hidden = array.shape[:3]
    found = array[:, np.argsort(_ORDER[op])]
    return found.reshape(directions, gates * hidden, *array.shape[3:])


def peepholes_last(array: NDArray[Any]) -> NDArray[Any]:
    """[D, 3, H] of i f o as ONNX's peepholes [D, 3*H] of i o f."""
    return np.asarray(array[:, (0, 2, 1)].reshape(array.shape[0], -1))
