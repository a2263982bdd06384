"""Recurrent states of recent language models: LinearAttention, its gates, and the short causal convolution in front of
it, com.microsoft's and ONNX's.

LinearAttention is a Scan over the tokens, whose state [B, N, K, V] is one matrix for each head of the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onnx import GraphProto, NodeProto, ValueInfoProto, helper

from ...ir.types import DType
from ..importer import Handler
from ..nodes import DEFAULT_DOMAIN
from .derived import Derived
from .forms import Form, handlers
from .fused import MICROSOFT
from .heads import constant_like, in_f32, known_size, size, unsqueezed

_GATED: Final = ("gated", "gated_delta")
_DELTA: Final = ("delta", "gated_delta")
_RULES: Final = ("linear", "gated", "delta", "gated_delta")


# -- convolution -----------------------------------------------------------------------------------


def _causal(at: Derived) -> None:
    """CausalConvWithState(input, weight, bias?, past_state?){activation, dilation, channels_last}: a depthwise convolution
    over input [B, C, L] behind past_state, the last positions before it, zeros where there is none; those of the next
    run are the second output. channels_last: [B, L, ...] with C channels in all.
    """
    attrs = at.node.attrs
    if attrs["activation"] not in ("none", "silu", "swish"):
        raise at.node.invalid(f"the activation of {at.node.op} is none of none, silu, swish")
    last = bool(attrs.get("channels_last", 0))
    kernel, dilation = known_size(at, at.input(1), 2, "kernel size"), attrs.get("dilation", 1)
    if dilation < 1:
        raise at.node.invalid(f"the attribute dilation of {at.node.op} is {dilation}")
    channels = known_size(at, at.input(1), 0, "number of channels")
    length = (kernel - 1) * dilation
    value = _channels_first(at, 0, channels) if last else at.input(0)
    if at.input(3):
        past = _channels_first(at, 3, channels) if last else at.input(3)
        whole = at.real("Concat", [past, value], {"axis": 2}, role="with past")
    else:
        pads = at.integers("pads", [0, 0, length, 0, 0, 0])
        whole = at.real("Pad", [value, pads], {"mode": "constant"}, role="with past")
    inputs = [whole, *filter(None, (at.input(1), at.input(2)))]
    attributes = {"group": channels, "dilations": (dilation,), "kernel_shape": (kernel,)}
    swish = attrs["activation"] != "none"
    made = at.real(
        "Conv",
        inputs,
        attributes,
        role="product",
        output="" if swish or last else at.node.output(0),
    )
    if swish:
        output = "" if last else at.node.output(0)
        made = at.real("Swish", [made], {"alpha": 1.0}, role="swish", output=output)
    if last:
        _channels_last(at, made, 0)
    if at.node.output(1):
        _last_positions(at, whole, length, last)


def _channels_first(at: Derived, index: int, channels: int) -> str:
    """[B, L, ...] -> [B, C, L]."""
    shape = at.integers(f"flat {index}", [0, 0, channels])
    flat = at.real("Reshape", [at.input(index), shape], role=f"flat {index}")
    return at.real("Transpose", [flat], {"perm": (0, 2, 1)}, role=f"channels first {index}")


def _channels_last(at: Derived, value: str, output: int) -> None:
    """[B, C, L] -> [B, L, ...], with the channels as the input has them."""
    rest = [
        known_size(at, at.input(0), axis, "number of channels")
        for axis in range(2, at.ctx.rank(at.node, at.input(0)))
    ]
    turned = at.real("Transpose", [value], {"perm": (0, 2, 1)}, role=f"channels last {output}")
    shape = at.integers(f"shape {output}", [0, 0, *rest])
    at.real("Reshape", [turned, shape], role=f"given {output}", output=at.node.output(output))


def _last_positions(at: Derived, whole: str, length: int, last: bool) -> None:
    ends = [-length, (1 << 63) - 1] if length else [0, 0]
    numbers = [at.integers(f"state {k}", [n]) for k, n in enumerate((*ends, 2))]
    output = "" if last else at.node.output(1)
    state = at.real("Slice", [whole, *numbers], role="state", output=output)
    if last:
        _channels_last(at, state, 1)


# -- attention -------------------------------------------------------------------------------------


def _gate(at: Derived) -> None:
    """LinearAttentionGate(a, dt_bias, decay_scale, b?): decay_scale * Softplus(a + dt_bias), and the sigmoid of b, both
    computed in f32.
    """
    kind = at.ctx.type(at.input(0)).dtype
    wide = at.ctx.cast(at.node, at.input(0), DType.F32, "f32 a")
    biased = at.real("Add", [wide, at.input(1)], role="biased")
    positive = at.real("Softplus", [biased], role="positive")
    decay = at.real("Mul", [at.input(2), positive], role="decay")
    _given(at, decay, kind, 0)
    if at.node.output(1):
        if not at.input(3):
            raise at.node.invalid(f"{at.node.op} has the output beta, and no input b")
        rate = at.ctx.cast(at.node, at.input(3), DType.F32, "f32 b")
        _given(at, at.real("Sigmoid", [rate], role="rate"), kind, 1)


def _given(at: Derived, value: str, kind: DType, output: int) -> None:
    at.ctx.cast(at.node, value, kind, f"given {output}", output=at.node.output(output))


def _attention(at: Derived) -> None:
    """LinearAttention(query, key, value, past_state?, decay?, beta?){q_num_heads, kv_num_heads, update_rule, scale,
    chunk_size}: for each token the state is decayed by exp(decay) (gated), its answer to the key is taken off the value
    and that times beta (delta), then key x value is added, and scale * query @ state read. Heads of the query and those of
    the key and value share each other.
    """
    in_f32(_recurrence, like=(0, 3 if at.input(3) else 0))(at)


def _recurrence(at: Derived) -> None:
    attrs = at.node.attrs
    rule, queries, heads = attrs["update_rule"], attrs["q_num_heads"], attrs["kv_num_heads"]
    if rule not in _RULES:
        raise at.node.invalid(f"the update_rule of {at.node.op} is none of {', '.join(_RULES)}")
    if queries < 1 or heads < 1 or max(queries, heads) % min(queries, heads):
        raise at.node.invalid(
            f"{queries} heads of the query and {heads} of the keys do not share each other"
        )
    taken = [(4, rule in _GATED, "decay"), (5, rule in _DELTA, "beta")]
    for index, needed, name in taken:
        if needed and not at.input(index):
            raise at.node.invalid(f"{at.node.op} with update_rule {rule} needs its input {name}")
    width = known_size(at, at.input(1), -1, "channels of the key") // heads
    wide = known_size(at, at.input(2), -1, "channels of the value") // heads
    groups = max(queries // heads, 1)
    query = _of_tokens(at, 0, (heads * groups, width) if queries >= heads else (queries, width))
    if queries < heads:
        query = _repeated(at, query, heads // queries, width)
    query = _reshaped(at, query, (0, 0, heads, groups, width), "query heads")
    factor = attrs["scale"] or width**-0.5
    query = at.real("Mul", [query, constant_like(at, "scale", factor, query)], role="scaled")
    parts = [query, _of_tokens(at, 1, (heads, 1, width)), _of_tokens(at, 2, (heads, 1, wide))]
    if rule in _GATED:
        each = known_size(at, at.input(4), -1, "channels of the decay") // heads
        decay = _of_tokens(at, 4, (heads, each, 1))
        parts.append(at.real("Exp", [decay], role="factor of decay"))
    if rule in _DELTA:
        rates = known_size(at, at.input(5), -1, "channels of beta")
        parts.append(_of_tokens(at, 5, (rates, 1, 1)))
    rows, state = _scanned(at, _first_state(at, heads, width, wide), parts, _body(rule))
    shape = at.integers("joined", (0, 0, heads * groups * wide))
    at.real("Reshape", [rows, shape], role="joined", output=at.node.output(0))
    if at.node.output(1):
        at.real("Identity", [state], role="state", output=at.node.output(1))


def _reshaped(at: Derived, value: str, shape: tuple[int, ...], role: str) -> str:
    return at.real("Reshape", [value, at.integers(f"{role} shape", shape)], role=role)


def _of_tokens(at: Derived, index: int, shape: tuple[int, ...]) -> str:
    """Input [B, T, D] -> [B, T, shape]."""
    return _reshaped(at, at.input(index), (0, 0, *shape), f"part {index}")


def _repeated(at: Derived, query: str, times: int, width: int) -> str:
    """[B, T, N, K] -> [B, T, N, times, K]."""
    apart = unsqueezed(at, query, [3], "query")
    target = at.integers("query times", (1, 1, 1, times, 1))
    repeated = at.real("Expand", [apart, target], role="query repeated")
    return _reshaped(at, repeated, (0, 0, -1, width), "query joined")


def _first_state(at: Derived, heads: int, width: int, wide: int) -> str:
    if at.input(3):
        return at.input(3)
    batch = size(at, at.input(0), 0, "batch")
    matrix = at.integers("matrices", (heads, width, wide))
    shape = at.real("Concat", [batch, matrix], {"axis": 0}, role="shape of state")
    return at.real("Expand", [constant_like(at, "nothing", 0.0, at.input(0)), shape], role="zeros")


def _body(rule: str) -> GraphProto:
    """One token: s [B, N, K, V], q [B, N, G, K], k [B, N, 1, K], v [B, N, 1, V], g [B, N, K or 1, 1], b [B, N or 1, 1, 1]."""
    nodes: list[NodeProto] = []

    def add(op: str, *inputs: str, output: str, **attrs: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], **attrs))
        return output

    state, value = "s", "v"
    if rule in _GATED:
        state = add("Mul", "g", state, output="decayed")
    if rule in _DELTA:
        known = add("MatMul", "k", state, output="known")
        news = add("Sub", value, known, output="news")
        value = add("Mul", "b", news, output="learned")
    turned = add("Transpose", "k", output="column", perm=[0, 1, 3, 2])
    outer = add("Mul", turned, value, output="outer")
    add("Add", state, outer, output="state")
    add("MatMul", "q", "state", output="row")
    names = ["s", "q", "k", "v", *("g" * (rule in _GATED)), *("b" * (rule in _DELTA))]
    inputs, outputs = (
        [ValueInfoProto(name=name) for name in given] for given in (names, ("state", "row"))
    )
    return helper.make_graph(nodes, "token", inputs, outputs)


def _scanned(at: Derived, state: str, parts: list[str], body: GraphProto) -> tuple[str, str]:
    """The rows [B, T, ...] and the last state of a Scan over the tokens of the parts."""
    inputs = (state, *parts)
    outputs = tuple(at.ctx.fresh(f"{at.node.name}.{name}") for name in ("last", "rows"))
    attrs = {
        "body": body,
        "num_scan_inputs": len(parts),
        "scan_input_axes": (1,) * len(parts),
        "scan_output_axes": (1,),
    }
    made = at.ctx.derived(at.node, "tokens", "Scan", inputs, attrs)
    at.ctx.take(made.rewritten(outputs=outputs))
    return outputs[1], outputs[0]


_CAUSAL: Final[dict[str, Any]] = {"activation": "none"}
_ATTENTION: Final[dict[str, Any]] = {
    "q_num_heads": int,
    "kv_num_heads": int,
    "update_rule": "gated_delta",
    "scale": 0.0,
    "chunk_size": 64,
}
_EXTENDED: Final[dict[str, Any]] = {
    "ndim": 1,
    "state_update_capacity": 0,
    "state_channels_last": -1,
    "state_window": 0,
    "state_length": 0,
    "input_channel_offset": 0,
    "input_channels": 0,
}
_INPUTS: Final = "query key value past_state? decay? beta?"

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    **handlers(
        MICROSOFT,
        {
            "CausalConvWithState": Form(
                "input weight bias? past_state?",
                "output present_state? state_update-",
                _causal,
                {**_CAUSAL, "dilation": 1, "channels_last": 0},
                _EXTENDED,
            ),
            "LinearAttention": Form(
                _INPUTS, "output present_state?", _attention, _ATTENTION, {"state_window": 0}
            ),
            "LinearAttentionGate": Form("a dt_bias decay_scale b?", "decay beta?", _gate),
        },
    ),
    **handlers(
        DEFAULT_DOMAIN,
        {
            "CausalConvWithState": Form(
                "input weight bias? past_state?", "output present_state?", _causal, _CAUSAL
            ),
            "LinearAttention": Form(_INPUTS, "output present_state?", _attention, _ATTENTION),
        },
    ),
}
