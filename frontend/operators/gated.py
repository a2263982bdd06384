"""Gates and normalizations by root mean square of recent language models, as ONNX Runtime fuses them, in
com.microsoft.

Each is written as the operations that it was fused of, which the passes know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ..importer import Handler
from .derived import Derived
from .forms import Form, handlers
from .fused import MICROSOFT
from .heads import constant_like, in_f32


def _gated_sum(at: Derived) -> None:
    """GatedAdd(X, Y, gate): X + Y * gate."""
    product = at.real("Mul", [at.input(1), at.input(2)], role="gated")
    at.real("Add", [at.input(0), product], output=at.node.output(0))


def _scaled_swish(at: Derived) -> None:
    """ScaledSiLU(X, scale?){alpha}: the swish of scale * X, of alpha * X without scale."""
    value = at.input(0)
    kind = at.ctx.type(value).dtype
    if at.input(1):
        if at.ctx.rank(at.node, at.input(1)):
            raise at.node.invalid(f"the scale of {at.node.op}, {at.input(1)!r}, is no scalar")
        factor = at.ctx.cast(at.node, at.input(1), kind, "scale")
    else:
        factor = constant_like(at, "alpha", float(at.node.attrs["alpha"]), value)
    scaled = at.real("Mul", [value, factor], role="scaled")
    at.real("Swish", [scaled], {"alpha": 1.0}, output=at.node.output(0))


def _gated_normalization(at: Derived) -> None:
    """GatedRMSNorm(X, scale, gate){activation, epsilon}: the RMSNormalization of each group of as many elements as
    scale has along the last axis, times the swish or sigmoid of gate.
    """
    name = at.node.attrs["activation"]
    if name not in ("silu", "swish", "sigmoid"):
        raise at.node.invalid(f"the activation of {at.node.op} is none of silu, swish, sigmoid")
    value, scale, gate = (at.input(index) for index in range(3))
    size = _known(at, scale, 0)
    tail = [] if _sizes(at, value)[-1:] == [size] else [-1, size]
    normalized = _in_groups(at, value, tail, lambda grouped: _normalized(at, grouped, scale))
    op, attrs = ("Sigmoid", {}) if name == "sigmoid" else ("Swish", {"alpha": 1.0})
    at.real("Mul", [normalized, at.real(op, [gate], attrs, role="gate")], output=at.node.output(0))


def _branches_normalized(at: Derived) -> None:
    """BranchwiseRMSNorm(X, scale?){num_branches, epsilon}: the RMSNormalization along the last axis of X, or of each of
    num_branches equal parts of it, times a scale for each element of a part, or for those of all parts.
    """
    branches = at.node.attrs["num_branches"]
    if branches < 0:
        raise at.node.invalid(f"the attribute num_branches of {at.node.op} is {branches}")

    def scaled(grouped: str) -> str:
        axis = at.ctx.rank(at.node, grouped) - 1
        size, kind = _known(at, grouped, axis), at.ctx.type(grouped).dtype
        scale = at.ctx.cast(at.node, at.input(1), kind, "scale") if at.input(1) else ""
        if scale and _sizes(at, scale) == [size]:
            return _normalized(at, grouped, scale)
        value = _normalized(at, grouped, constant_like(at, "ones", [1.0] * size, grouped))
        if not scale:
            return value
        shape = at.integers("branches", [_known(at, grouped, axis - 1), size])
        return at.real("Mul", [value, at.real("Reshape", [scale, shape], role="by branch")])

    result = _in_groups(at, at.input(0), [branches, -1] if branches else [], scaled)
    at.real("Identity", [result], role="output", output=at.node.output(0))


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


def _normalized(at: Derived, value: str, scale: str) -> str:
    attrs = {"axis": -1, "epsilon": at.node.attrs["epsilon"]}
    return at.real("RMSNormalization", [value, scale], attrs, role="normalized")


def _in_groups(at: Derived, value: str, tail: Sequence[int], run: Callable[[str], str]) -> str:
    """What `run` makes of a value whose last axis is seen as the two of the shape `tail`; of the value as it is
    where there is none.
    """
    if not tail:
        return run(value)
    others = [0] * (at.ctx.rank(at.node, value) - 1)  # 0: the size that the value has there
    shape, back = at.integers("grouped", [*others, *tail]), at.integers("flat", [*others, -1])
    result = run(at.real("Reshape", [value, shape], role="groups"))
    return at.real("Reshape", [result, back], role="together")


def _sizes(at: Derived, value: str) -> list[object]:
    return list(at.ctx.type(value).shape or ())


def _known(at: Derived, value: str, axis: int) -> int:
    """The size of a dimension.

    Raises:
        InvalidModel: it is not known, or there is no such dimension.
    """
    (size,) = at.sizes(value, axis)
    if not isinstance(size, int):
        hint = "give the graph's inputs their sizes, and run shape inference"
        raise at.node.invalid(f"{at.node.op} needs the size of axis {axis} of {value!r}", hint)
    return size


_EPSILON: Final = {"epsilon": 1e-5}

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = handlers(
    MICROSOFT,
    {
        "GatedAdd": Form("X Y gate gate_weight-", "output", _gated_sum),
        "ScaledSiLU": Form("X scale?", "Y", _scaled_swish, {"alpha": 1.0}),
        "GatedRMSNorm": Form(
            "X scale gate", "Y", _gated_normalization, {**_EPSILON, "activation": "silu"}
        ),
        "SwiGLU": Form(
            "gate up?",
            "output",
            in_f32(_swiglu),
            {"activation_alpha": 1.0, "activation_beta": 0.0, "limit": 0.0},
            {"round_activation": 0},
        ),
        "BranchwiseRMSNorm": Form(
            "X scale?", "Y", _branches_normalized, {**_EPSILON, "num_branches": 0}
        ),
    },
)
