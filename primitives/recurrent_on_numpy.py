"""Recurrent layers as primitives on NumPy: the arithmetic of a plan's layers, one for each layer and
direction of the primitive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..ir.ops import OPS
from ..ir.ops.recurrent import Layer
from ..ir.ops.rows import A
from ..ir.ops.spec import Array, Attr
from ..ir.types import DType
from ..plan.attributes import Scale
from ..plan.recurrent import RNN_ACTIVATIONS, gates_last, peepholes_last
from ..plan.summation import EXACT, Summation
from ..runtime.kernels.recurrent_int8 import Int8Layer
from .description import Description
from .on_numpy import rounded_to
from .recurrent import directions_of, is_int8

_OPS = {
    "vanilla_rnn": "RNN",
    "lstm": "LSTM",
    "gru": "GRU",
    "lbr_gru": "GRU",
    "augru": "AUGRU",
    "lbr_augru": "AUGRU",
}
_ONE = Scale((1.0,))


@dataclass
class _States:
    """The states in front of all layers, or behind them, [L, D, N, P] and [L, D, N, H]."""

    h: A
    c: A


def run(
    description: Description, args: Mapping[str, Array], law: Summation = EXACT
) -> dict[str, Array]:
    """The destinations by role.

    Args:
        description: the layer, with the attributes and values of `onednn-v3`.
        args: an array for each argument.
        law: how products of codes are summed.
    """
    layers, count = description.dims("weights_layer")[:2]
    states, last = _initial(description, args), _last(description)
    results = []
    for d, backwards in zip(range(count), directions_of(description), strict=True):
        data: A = args["src_layer"]
        for layer in range(layers):
            data = _one(description, args, (layer, d), data, states, last, law, backwards=backwards)
        results.append(data)
    y = results[0]
    if description.params["direction"] == "sum":
        y = _sum(description, *results)
    if description.params["direction"] == "concat":
        y = np.concatenate(results, axis=2)
    code = _int8(description, args, (0, 0)).decoded if is_int8(description) else None
    found = {"dst_layer": y, "dst_iter": last.h, "dst_iter_c": last.c}
    for role in ("dst_layer", "dst_iter"):
        decodes = role in description.tensors and not description.dtype(role).is_integer
        if code is not None and decodes:
            found[role] = code(found[role].astype(np.float32))
    return {
        role: found[role].astype(description.dtype(role).numpy)
        for role in description.destinations()
    }


def _sum(description: Description, first: A, second: A) -> A:
    """Of two directions; of codes without shift, the code of the sum."""
    if not is_int8(description):
        return rounded_to(description.dtype("dst_layer"), first + second)
    codes = np.iinfo(first.dtype)
    return np.clip(first.astype(np.int32) + second, codes.min, codes.max).astype(first.dtype)


def _initial(description: Description, args: Mapping[str, Array]) -> _States:
    """Those that are given, or 0; of codes the codes."""
    lead, batch = description.dims("weights_layer")[:2], description.dims("src_layer")[1]
    hidden, state = description.dims("weights_layer")[4], description.dims("weights_iter")[2]
    h = args.get("src_iter", np.zeros((*lead, batch, state), np.float32))
    c = args.get("src_iter_c", np.zeros((*lead, batch, hidden), np.float32))
    if is_int8(description) and h.dtype == np.float32:
        h = _int8(description, args, (0, 0)).codes(h)
    return _States(h.astype(np.float32), c)


def _last(description: Description) -> _States:
    lead, batch = description.dims("weights_layer")[:2], description.dims("src_layer")[1]
    hidden = description.dims("weights_layer")[4]
    return _States(
        np.zeros((*lead, batch, _outputs(description)), np.float32),
        np.zeros((*lead, batch, hidden), np.float32),
    )


def _outputs(description: Description) -> int:
    projected = "weights_projection" in description.tensors
    return description.dims("weights_projection" if projected else "weights_layer")[-1]


def _one(
    description: Description,
    args: Mapping[str, Array],
    at: tuple[int, int],
    data: A,
    states: _States,
    last: _States,
    law: Summation,
    *,
    backwards: bool,
) -> A:
    """The result [T, N, P] of one layer in one direction, numbers or codes; its last states go to
    `last`.
    """
    steps, batch, _ = data.shape
    y = np.empty((steps, batch, _outputs(description)), data.dtype)
    if is_int8(description):
        last.h[at], last.c[at] = _int8(description, args, at, law).direction(
            0,
            data,
            y,
            states.h[at],
            states.c[at],
            _biases(description, args, at),
            backwards=backwards,
        )
        return y
    found = _layer(description, args, at, data, backwards=backwards)
    layer = replace(found, h=states.h[at][None], c=states.c[at][None])
    last.h[at], *cell = layer.direction(0, y)
    if cell:
        last.c[at] = cell[0]
    return y


def _layer(
    description: Description,
    args: Mapping[str, Array],
    at: tuple[int, int],
    data: A,
    *,
    backwards: bool,
) -> Layer:
    """The same as a layer of ONNX."""
    kind = description.kind
    attrs: dict[str, Attr] = dict(OPS[_OPS[kind]].complete({}))
    attrs["direction"] = "reverse" if backwards else "forward"
    if kind.startswith("lbr"):
        attrs["linear_before_reset"] = 1
    if kind == "vanilla_rnn":
        algorithm, alpha = description.params["algorithm"], description.params["alpha"]
        names = {name: onnx for onnx, name in RNN_ACTIVATIONS.items()}  # of relu, the leaky one
        attrs["activations"] = (names[str(algorithm)],)
        attrs["activation_alpha"] = (alpha,) if algorithm == "relu" else ()
    w, r = (_rows(kind, args[role][at])[None] for role in ("weights_layer", "weights_iter"))
    peepholes = args.get("weights_peephole")
    projection = args.get("weights_projection")
    return Layer(
        _OPS[kind],
        attrs,
        data,
        w,
        r,
        b=_biases(description, args, at)[None],
        p=None if peepholes is None else peepholes_last(peepholes[at][None]),
        attention=args.get("attention"),
        projection=None if projection is None else projection[at].T[None],
        stored=_to_bf16 if description.dtype("src_layer") is DType.BF16 else None,
    )


def _to_bf16(states: A) -> A:
    return rounded_to(DType.BF16, states)


def _rows(kind: str, weights: A) -> A:
    """Weights (I, G, H) as [G*H, I], the gates in ONNX's order."""
    found: A = gates_last(_OPS[kind], weights.transpose(1, 2, 0)[None])[0]
    return found


def _biases(description: Description, args: Mapping[str, Array], at: tuple[int, int]) -> A:
    """Biases (G, H) as [2*G*H], ONNX's: all are those of the product with the input, but one that a cell
    adds in front of its reset.
    """
    bias, op = args["bias"][at], _OPS[description.kind]
    of_r = np.zeros_like(bias)
    if description.kind.startswith("lbr"):
        *most, apart = bias
        bias, of_r = np.stack(most), np.zeros_like(bias[:-1])
        of_r[-1] = apart
    return np.concatenate([gates_last(op, half[None])[0] for half in (bias, of_r)])


def _int8(
    description: Description,
    args: Mapping[str, Array],
    at: tuple[int, int],
    law: Summation = EXACT,
) -> Int8Layer:
    attr, kind = description.attr, description.kind
    data = attr.rnn_data_qparams or Scale((1.0, 0.0))
    scales = (attr.rnn_weights_qparams or _ONE).array
    if scales.size > 1:
        scales = gates_last(_OPS[kind], scales.reshape(1, -1, args["weights_layer"].shape[4]))[0]
    w, r = (_rows(kind, args[role][at])[None] for role in ("weights_layer", "weights_iter"))
    projection = args.get("weights_projection")
    own = (attr.rnn_weights_projection_qparams or _ONE).array
    return Int8Layer(
        _OPS[kind],
        data.values,
        scales,
        w,
        r,
        projection=None if projection is None else (projection[at].T[None], own),
        signed=args["src_layer"].dtype == np.int8,
        law=law,
    )
