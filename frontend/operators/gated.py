"""Gates and normalizations by root mean square of recent language models, as ONNX Runtime fuses them, in
com.microsoft.

Each is written as the operations that it was fused of, which the passes know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..importer import Handler
from .derived import Derived
from .forms import Form, handlers
from .fused import MICROSOFT
from .heads import constant_like, in_f32, known_size


def _gated_sum(at: Derived) -> None:
    """GatedAdd(X, Y, gate): X + Y * gate."""
    product = at.real("Mul", [at.input(1), at.input(2)], role="gated")
    at.real("Add", [at.input(0), product], output=at.node.output(0))


def _gated_normalization(at: Derived) -> None:
    """GatedRMSNorm(X, scale, gate){activation, epsilon}: the RMSNormalization of each group of as many elements as
    scale has along the last axis, times the swish or sigmoid of gate.
    """
    name = at.node.attrs["activation"]
    if name not in ("silu", "swish", "sigmoid"):
        raise at.node.invalid(f"the activation of {at.node.op} is none of silu, swish, sigmoid")
    value, scale, gate = (at.input(index) for index in range(3))
    size = known_size(at, scale, 0, "size of a group")
    others = [0] * (at.ctx.rank(at.node, value) - 1)  # 0: the size that the value has there
    shape, back = at.integers("grouped", [*others, -1, size]), at.integers("flat", [*others, -1])
    groups = at.real("Reshape", [value, shape], role="groups")
    attrs = {"axis": -1, "epsilon": at.node.attrs["epsilon"]}
    normalized = at.real("RMSNormalization", [groups, scale], attrs, role="normalized")
    normalized = at.real("Reshape", [normalized, back], role="together")
    op, attrs = ("Sigmoid", {}) if name == "sigmoid" else ("Swish", {"alpha": 1.0})
    at.real("Mul", [normalized, at.real(op, [gate], attrs, role="gate")], output=at.node.output(0))


def _swiglu(at: Derived) -> None:
    """SwiGLU(gate, up?){activation_alpha, activation_beta, limit}: G * sigmoid(alpha * G) * (L + beta), G the gate up to the limit
    and L up within it, where there is one above 0; without up, gate is both, one behind the other.
    """
    attrs, gate, other = at.node.attrs, at.input(0), at.input(1)
    if not at.ctx.type(gate).dtype.is_float:
        raise at.node.invalid(
            f"{at.node.op} is one of floats, and {gate!r} has {at.ctx.type(gate)}"
        )
    if not other:
        gate, other = at.pieces(gate, -1, count=2)
    if attrs["limit"] > 0:
        low, high = (constant_like(at, f"limit {k}", k * attrs["limit"], gate) for k in (-1, 1))
        gate = at.real("Min", [gate, high], role="limited gate")
        other = at.real("Clip", [other, low, high], role="limited")
    swish = at.real("Swish", [gate], {"alpha": float(attrs["activation_alpha"])}, role="swish")
    if attrs["activation_beta"]:
        beta = constant_like(at, "beta", attrs["activation_beta"], other)
        other = at.real("Add", [other, beta], role="raised")
    at.real("Mul", [swish, other], output=at.node.output(0))


HANDLERS: Final[Mapping[tuple[str, str], Handler]] = handlers(
    MICROSOFT,
    {
        "GatedAdd": Form("X Y gate gate_weight-", "output", _gated_sum),
        "GatedRMSNorm": Form(
            "X scale gate", "Y", _gated_normalization, {"epsilon": 1e-5, "activation": "silu"}
        ),
        "SwiGLU": Form(
            "gate up?",
            "output",
            in_f32(_swiglu),
            {"activation_alpha": 1.0, "activation_beta": 0.0, "limit": 0.0},
            {"round_activation": 0},
        ),
    },
)
