"""Mixtures of experts of com.microsoft, as ONNX Runtime's model builder writes them: MoE, and QMoE with weights of 4 or 8 bits.

Each expert is an If, which is run for all tokens where one of them has chosen it. Letters: T tokens, E experts, H channels
of a token, F of what an expert makes inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from ...errors import UnsupportedOp
from ...ir.ops.blocks import unpacked
from ...ir.ops.spec import Array
from ...ir.types import DType
from ..importer import Handler
from .derived import Derived
from .forms import Form, handlers
from .fused import MICROSOFT

_ACTIVATIONS: Final = ("relu", "gelu", "silu", "swiglu", "identity")
_SEPARATE, _INTERLEAVED, _ONE_BEHIND_THE_OTHER = range(3)
_WIDTHS: Final = (4, 8)
_ON_GPUS: Final = "it is of GPUs: export the model for CPUs"


@dataclass
class _Body:
    """Writes the nodes of a body; their values have names that nothing else has."""

    at: Derived
    nodes: list[NodeProto] = field(default_factory=list)

    def add(self, op: str, *inputs: str, domain: str = "", **attrs: Any) -> str:
        output = self.at.ctx.fresh(f"{self.at.node.name}.{op.lower()}")
        name = f"{output}.node"
        made = helper.make_node(op, inputs, [output], name, domain=domain, **attrs)
        self.nodes.append(made)
        return output

    def halves(self, value: str) -> tuple[str, str]:
        fresh = self.at.ctx.fresh
        names = [fresh(f"{self.at.node.name}.{half}") for half in ("gate", "up")]
        self.nodes.append(helper.make_node("Split", [value], names, axis=-1, num_outputs=2))
        return names[0], names[1]

    def graph(self, output: str) -> GraphProto:
        return helper.make_graph(self.nodes, "expert", [], [ValueInfoProto(name=output)])


_Product = Callable[[_Body, str, int], str]
"""(body, value [T, ...], expert) -> its product with that expert's weights, and the bias."""


# -- what each token chooses -----------------------------------------------------------------------


def _routes(at: Derived, experts: int, weights: str) -> tuple[str, str]:
    """How much of each expert a token gets [T, E], 0 of those that it has not chosen, and whether a token has chosen
    an expert [E]. `weights`: what the chosen ones are weighted by in place of the router's probabilities, '' for these,
    which QMoE always normalizes on CPUs.
    """
    count = at.node.attrs["k"]
    if not 0 < count <= experts:
        raise at.node.invalid(f"{at.node.op} chooses {count} of {experts} experts")
    logits = at.ctx.cast(at.node, at.input(1), DType.F32, "logits")
    chances = at.real("Softmax", [logits], {"axis": -1}, role="chances")
    chosen = _chosen(at, chances, count, experts, "experts")
    if weights:
        chances = at.ctx.cast(at.node, weights, DType.F32, "weights")
    routes = at.real("Mul", [chosen, chances], role="routes")
    if at.node.attrs["normalize_routing_weights"] or (at.node.op == "QMoE" and not weights):
        whole = at.real(
            "ReduceSum", [routes, at.integers("all", [1])], {"keepdims": 1}, role="whole"
        )
        routes = at.real("Div", [routes, whole], role="shares")
    users = at.real(
        "ReduceSum", [chosen, at.integers("tokens", [0])], {"keepdims": 0}, role="users"
    )
    used = at.real("Greater", [users, at.constant("nobody", 0.0)], role="used")
    return routes, used


def _chosen(at: Derived, value: str, count: int, size: int, role: str) -> str:
    """1 for the largest so many of each row [T, size], 0 for the others."""
    inputs = [value, at.integers(f"count {role}", [count])]
    made = at.ctx.derived(at.node, f"best {role}", "TopK", inputs, {"axis": -1})
    best, places = (at.ctx.fresh(f"{at.node.name}.{name} {role}") for name in ("best", "places"))
    at.ctx.take(made.rewritten(outputs=(best, places)))
    one_of_all = at.constant(f"one of all {role}", np.eye(size))
    each = at.real("Gather", [one_of_all, places], {"axis": 0}, role=f"each {role}")
    axes = at.integers(f"choices {role}", [1])
    return at.real("ReduceSum", [each, axes], {"keepdims": 0}, role=f"chosen {role}")


def _mixed(
    at: Derived, sizes: tuple[int, int], inside: _Product, outside: _Product, weights: str = ""
) -> None:
    """The sum of all experts' results, each times its route; `sizes`: E and H."""
    experts, width = sizes
    ctx, value = at.ctx, at.input(0)
    kind, rank = ctx.type(value).dtype, ctx.rank(at.node, value)
    if rank not in (2, 3):
        raise at.node.invalid(f"the input of {at.node.op} has {rank} dimensions, and needs 2 or 3")
    tokens = ctx.cast(at.node, value, DType.F32, "f32")
    if rank == 3:
        flat = at.integers("flat", [-1, width])
        tokens = at.real("Reshape", [tokens, flat], role="tokens")
    routes, used = _routes(at, experts, weights)
    results = []
    for expert in range(experts):
        number = at.integers(f"number {expert}", expert)
        goes = at.real("Gather", [used, number], {"axis": 0}, role=f"goes {expert}")
        column = at.integers(f"column {expert}", [expert])
        route = at.real("Gather", [routes, column], {"axis": 1}, role=f"route {expert}")
        body = _Body(at)
        made = outside(body, inside(body, tokens, expert), expert)
        then = body.graph(body.add("Mul", made, route))
        branches = {"then_branch": then, "else_branch": _nothing(at, tokens)}
        results.append(at.real("If", [goes], branches, role=f"expert {expert}"))
    mixed = at.real("Sum", results, role="mixed")
    if rank == 3:
        shape = at.real("Shape", [value], role="shape")
        mixed = at.real("Reshape", [mixed, shape], role="as given")
    ctx.cast(at.node, mixed, kind, "given", output=at.node.output(0))


def _nothing(at: Derived, tokens: str) -> GraphProto:
    body = _Body(at)
    zero = body.add("Constant", value=helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]))
    return body.graph(body.add("Expand", zero, body.add("Shape", tokens)))


# -- what an expert is -----------------------------------------------------------------------------


def _activated(at: Derived, first: _Product, third: _Product | None) -> _Product:
    """The activation of the first product; a gate times the other half of it, or the third product, where there are both."""
    attrs = at.node.attrs
    name, fusion = attrs["activation_type"], attrs["swiglu_fusion"]
    if name not in _ACTIVATIONS:
        raise UnsupportedOp(
            f"the activation_type of {at.node.op} is none of {', '.join(_ACTIVATIONS)}",
            where=at.node.where,
            hint=_ON_GPUS,
        )
    limit = attrs["swiglu_limit"]
    if limit is not None and not isinstance(limit, (int, float)):
        raise at.node.invalid(f"the attribute swiglu_limit of {at.node.op} is no number")
    gated = name == "swiglu"
    if gated != (fusion != _SEPARATE or third is not None) or (fusion and third):
        raise UnsupportedOp(
            f"{at.node.op} with activation_type {name}, swiglu_fusion {fusion} and {'a' if third else 'no'} third product",
            where=at.node.where,
            hint="give swiglu its gates fused with fc1, or as fc3",
        )

    def run(body: _Body, value: str, expert: int) -> str:
        made = first(body, value, expert)
        if gated:
            gate, other = (made, third(body, value, expert)) if third else body.halves(made)
            return _swiglu(body, attrs, gate, other)
        if name == "silu":
            return body.add("Mul", made, body.add("Sigmoid", made))
        if name == "gelu":
            return body.add("Gelu", made, approximate="tanh")
        return body.add("Relu", made) if name == "relu" else made

    return run


def _swiglu(body: _Body, attrs: Mapping[str, Any], gate: str, other: str) -> str:
    """G * sigmoid(alpha * G) * (L + beta), G up to the limit, L within it."""
    constant = body.at.constant
    if attrs["swiglu_limit"] is not None:
        limit = float(attrs["swiglu_limit"])
        ends = constant("lowest", -limit), constant("highest", limit)
        gate = body.add("Min", gate, ends[1])
        other = body.add("Clip", other, *ends)
    scaled = body.add("Mul", gate, constant("alpha", attrs["activation_alpha"]))
    gate = body.add("Mul", gate, body.add("Sigmoid", scaled))
    return body.add("Mul", gate, body.add("Add", other, constant("beta", attrs["activation_beta"])))


def _in_order(at: Derived, rows: Array, first: bool) -> Array:
    """The rows of an expert, those of gates in front of the others where they are interleaved."""
    if not first or at.node.attrs["swiglu_fusion"] != _INTERLEAVED:
        return rows
    return np.concatenate([rows[0::2], rows[1::2]])


def _shape(at: Derived, data: Array, what: str, shape: Sequence[int]) -> Array:
    if data.shape != tuple(shape):
        raise at.node.invalid(f"{what} is {list(data.shape)}, and not {list(shape)}")
    return data


def _bias(at: Derived, index: int, expert: int, rows: int, first: bool) -> str:
    if not at.input(index):
        return ""
    data = at.floats(at.input(index), "bias")
    if data.ndim != 2 or data.shape[1] != rows or expert >= len(data):
        raise at.node.invalid(f"the bias {at.input(index)!r} is {list(data.shape)}")
    return at.constant(f"bias {index} {expert}", _in_order(at, data[expert], first))


def _real_product(at: Derived, index: int, first: bool) -> _Product:
    """By weights [E, N, K], and a bias [E, N] behind them."""
    weights = at.data(at.input(index), "weights")
    if weights.ndim != 3 or weights.dtype.kind != "f":
        raise at.node.invalid(f"the weights are {weights.dtype}{list(weights.shape)}")

    def run(body: _Body, value: str, expert: int) -> str:
        own = _in_order(at, weights[expert], first).astype(np.float32)
        turned = at.constant(f"weights {index} {expert}", np.ascontiguousarray(own.T))
        made = body.add("MatMul", value, turned)
        bias = _bias(at, index + 1, expert, len(own), first)
        return body.add("Add", made, bias) if bias else made

    return run


def _moe(at: Derived) -> None:
    """MoE(input, router_probs, fc1_experts_weights, fc1_experts_bias?, fc2_experts_weights, fc2_experts_bias?, fc3_experts_weights?,
    fc3_experts_bias?){k, activation_type, normalize_routing_weights, swiglu_fusion, activation_alpha, activation_beta,
    swiglu_limit}: each token [., H] is the sum of fc2(activation(fc1)) of the k experts that the softmax of router_probs
    is largest for, times that.
    """
    third = _real_product(at, 6, False) if at.input(6) else None
    inside = _activated(at, _real_product(at, 2, True), third)
    outside = _real_product(at, 4, False)
    experts, _, width = at.data(at.input(2), "weights").shape
    _mixed(at, (experts, width), inside, outside)
    for index in range(2, len(at.node.inputs)):
        if at.input(index):
            at.ctx.release(at.input(index))


# -- weights of few bits ---------------------------------------------------------------------------


def _coded_product(
    at: Derived, index: int, zeros: int, bits: int, width: int, first: bool
) -> _Product:
    """By codes [E, N, bytes of K], scales, a bias, and zero points elsewhere: a MatMulNBits for each expert. `width`: K."""
    codes, scales = at.data(at.input(index), "weights"), at.data(at.input(index + 1), "scales")
    if bits not in _WIDTHS:
        raise UnsupportedOp(
            f"{at.node.op} with codes of {bits} bits",
            where=at.node.where,
            hint="quantize the experts to 4 or 8 bits",
        )
    block = _whole(at, "block_size") or width
    if block < 1 or width % block or width * bits % 8 or block * bits % 8:
        raise at.node.invalid(f"{at.node.op} with {width} channels in blocks of {block}")
    if codes.ndim != 3 or codes.dtype != np.uint8:
        raise at.node.invalid(f"the weights are {codes.dtype}{list(codes.shape)}")
    experts, rows, _ = codes.shape
    blocks = width // block
    _shape(at, codes, "the weights", (experts, rows, width * bits // 8))
    scales = _shape(at, scales.reshape(experts, rows, -1), "the scales", (experts, rows, blocks))
    points = _points(at, zeros, bits, (experts, rows, blocks)) if at.input(zeros) else None
    sizes = {"K": width, "N": rows, "bits": bits, "block_size": block}
    coarse = {"accuracy_level": 4} if at.node.attrs["accuracy_level"] == 4 or bits == 8 else {}

    def run(body: _Body, value: str, expert: int) -> str:
        add, label = at.ctx.add_constant, f"{index} {expert}"
        own = _in_order(at, codes[expert], first).reshape(rows, blocks, -1)
        inputs = [
            value,
            add(at.node, f"codes {label}", own, DType.U8),
            at.constant(f"scales {label}", _in_order(at, scales[expert], first).reshape(-1)),
            "",
            "",
            _bias(at, index + 2, expert, rows, first),
        ]
        if points is not None:
            given = _in_order(at, points[expert], first).astype(np.float32)
            inputs[3] = at.constant(f"zero points {label}", given)
        while not inputs[-1]:
            inputs.pop()
        return body.add("MatMulNBits", *inputs, domain=MICROSOFT, **sizes, **coarse)

    return run


def _whole(at: Derived, name: str) -> int:
    """An attribute that may be absent: 0 then."""
    value = at.node.attrs[name]
    if value is not None and not isinstance(value, int):
        raise at.node.invalid(f"the attribute {name} of {at.node.op} is no integer")
    return value or 0


def _points(at: Derived, index: int, bits: int, shape: tuple[int, int, int]) -> Array:
    """Zero points [E, N, blocks], one to an element; those of whole rows are packed along the rows of an expert."""
    experts, rows, blocks = shape
    data = at.data(at.input(index), "zero points")
    packed_along = blocks if at.node.attrs["block_size"] else rows
    stored = -(-packed_along * bits // 8)
    count = experts * rows * stored if at.node.attrs["block_size"] else experts * stored
    if data.dtype != np.uint8 or data.size != count:
        raise at.node.invalid(f"the zero points are {data.dtype}{list(data.shape)}")
    apart = unpacked(data.reshape(-1, stored), bits)[:, :packed_along]
    return apart.reshape(shape)


def _quantized_moe(at: Derived) -> None:
    """QMoE(input, router_probs, weights, scales and bias of fc1, fc2 and fc3, zero points of the three, router_weights?){attributes
    of MoE, block_size, expert_weight_bits, accuracy_level}: a MoE with weights [E, N, bytes of K] of 4 or 8 bits, and scales for
    each row or block; router_weights take the place of the chosen experts' probabilities, which add up to 1 without them.
    """
    attrs = at.node.attrs
    widths = [_whole(at, f"fc{k}_{_BITS}") or attrs[_BITS] for k in (1, 2, 3)]
    for index, name in ((3, "fc1"), (6, "fc2"), (9, "fc3")):
        if at.input(index - 1) and not at.input(index):
            raise at.node.invalid(f"{at.node.op} lacks the scales of {name}")
    inner = at.data(at.input(5), "weights")
    if inner.ndim != 3:
        raise at.node.invalid(f"the weights are {inner.dtype}{list(inner.shape)}")
    experts, width, stored = inner.shape
    third = _coded_product(at, 8, 13, widths[2], width, False) if at.input(8) else None
    first = _coded_product(at, 2, 11, widths[0], width, True)
    outside = _coded_product(at, 5, 12, widths[1], stored * 8 // widths[1], False)
    _mixed(at, (experts, width), _activated(at, first, third), outside, at.input(14))
    for index in range(2, min(len(at.node.inputs), 14)):
        if at.input(index):
            at.ctx.release(at.input(index))


_ATTRS: Final[Mapping[str, Any]] = {
    "k": 1,
    "activation_type": "relu",
    "normalize_routing_weights": 0,
    "swiglu_fusion": _SEPARATE,
    "activation_alpha": 1.0,
    "activation_beta": 0.0,
    "swiglu_limit": None,
}
_OF_GPUS: Final[Mapping[str, Any]] = {"use_sparse_mixer": 0, "swiglu_limit_after_activation": 0}
_BITS: Final = "expert_weight_bits"

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = handlers(
    MICROSOFT,
    {
        "MoE": Form(
            "input router_probs fc1_experts_weights fc1_experts_bias? fc2_experts_weights fc2_experts_bias? "
            "fc3_experts_weights? fc3_experts_bias?",
            "output",
            _moe,
            _ATTRS,
            _OF_GPUS,
        ),
        "QMoE": Form(
            "input router_probs fc1_experts_weights fc1_scales? fc1_experts_bias? fc2_experts_weights fc2_scales? fc2_experts_bias? "
            "fc3_experts_weights? fc3_scales? fc3_experts_bias? fc1_zero_points? fc2_zero_points? fc3_zero_points? router_weights? "
            "fc1_global_scale- fc2_global_scale- fc1_act_scale- fc2_act_scale- fc1_act_block_scale- fc2_act_block_scale-",
            "output",
            _quantized_moe,
            {
                **_ATTRS,
                _BITS: 4,
                **{f"fc{k}_{_BITS}": None for k in (1, 2, 3)},
                "block_size": None,
                "accuracy_level": 0,
                "weights_prepacked": -1,
            },
            {**_OF_GPUS, "quant_type": "int"},
        ),
    },
)
