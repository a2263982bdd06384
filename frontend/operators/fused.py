"""What ONNX Runtime fuses for floats: activations behind products, gelus, and normalizations of
sums, in com.microsoft; SimplifiedLayerNormalization, which it puts into ONNX's own domain, and RMSNormalization, which is.

Each is written as the operations that it was fused of, which the passes know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ...errors import UnsupportedOp
from ...ir.ops.spec import Trait
from ..importer import Handler
from ..nodes import DEFAULT_DOMAIN
from .derived import Derived
from .forms import Form, handlers
from .heads import constant_like, in_f32

MICROSOFT: Final = "com.microsoft"

_AXES_GIVEN: Final = 13  # the last opset in which ReduceMean has its axes as an attribute

_ACTIVATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
"""Activations that a product may have behind it -> their parameters in order."""

CONVOLUTION: Final[Mapping[str, Any]] = {
    "auto_pad": "NOTSET",
    "dilations": None,
    "group": 1,
    "kernel_shape": None,
    "pads": None,
    "strides": None,
}
"""Attributes of Conv."""

FUSED_CONVOLUTION: Final[Mapping[str, Any]] = {
    **CONVOLUTION,
    "activation": "",
    "activation_params": (),
}


def kept(at: Derived, names: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of these names that the node has."""
    return {name: at.node.attrs[name] for name in names if at.node.attrs[name] is not None}


def activated(
    at: Derived, value: str, name: str, parameters: Sequence[float | None], output: str
) -> None:
    """The activation of that name of a value, '' for none, as the output.

    Raises:
        InvalidModel: its parameters are missing.
        UnsupportedOp: an activation of another name.
    """
    if not name:
        at.real("Identity", [value], role="output", output=output)
        return
    wanted = _ACTIVATIONS.get(name)
    if wanted is None:
        raise UnsupportedOp(
            f"the attribute activation of {at.node.op} is {name!r}"[:200],
            where=at.node.where,
            hint=f"known activations: {', '.join(_ACTIVATIONS)}",
        )
    given = [number for number in parameters[: len(wanted)] if number is not None]
    if len(given) < len(wanted) or not all(isinstance(n, (int, float)) for n in given):
        raise at.node.invalid(f"the activation {name} needs its parameters {', '.join(wanted)}")
    if name == "Clip":
        bounds = [constant_like(at, role, v, value) for role, v in zip(wanted, given, strict=True)]
        at.real(name, [value, *bounds], role=name, output=output)
    else:
        at.real(
            name,
            [value],
            dict(zip(wanted, map(float, given), strict=True)),
            role=name,
            output=output,
        )


def convolved(at: Derived, inputs: Sequence[str], added: str, output: str) -> None:
    """activation(Conv(inputs) + added), `added` '' where there is nothing to add."""
    attrs = at.node.attrs
    value = at.real("Conv", inputs, kept(at, CONVOLUTION))
    if added:
        value = at.real("Add", [value, added], role="sum")
    activated(at, value, attrs["activation"], attrs["activation_params"], output)


def _convolution(at: Derived) -> None:
    """FusedConv(X, W, B?, Z?){attributes of Conv, activation, activation_params}: activation(Conv(X, W, B) + Z)."""
    inputs = [name for name in (at.input(0), at.input(1), at.input(2)) if name]
    convolved(at, inputs, at.input(3), at.node.output(0))


def _matrix_product(at: Derived) -> None:
    """FusedMatMul(A, B){alpha, transA, transB, transBatchA, transBatchB}: alpha * A @ B, matrices
    transposed where asked, and those of a batch gathered from the first dimension by transBatch.
    """
    _product_of_transposed(at, at.node.output(0))


def _activated_product(at: Derived) -> None:
    """FusedMatMulActivation: a FusedMatMul with the activation of that name behind it."""
    value = at.ctx.fresh(f"{at.node.name}.product")
    _product_of_transposed(at, value)
    activated(at, value, at.node.attrs["activation"], _named_parameters(at), at.node.output(0))


def _product_of_transposed(at: Derived, output: str) -> None:
    attrs = at.node.attrs
    operands = [
        _turned(at, index, bool(attrs[f"trans{side}"]), bool(attrs.get(f"transBatch{side}", 0)))
        for index, side in enumerate("AB")
    ]
    alpha = float(attrs["alpha"])
    value = at.real("MatMul", operands, output="" if alpha != 1 else output)
    if alpha != 1:
        factor = constant_like(at, "alpha", alpha, value)
        at.real("Mul", [value, factor], role="scaled", output=output)


def _turned(at: Derived, index: int, swapped: bool, batch_behind: bool) -> str:
    """An operand as MatMul takes it. `batch_behind`: its first dimension belongs to the matrix, and
    those of the batch follow it.
    """
    value = at.input(index)
    if not (swapped or batch_behind):
        return value
    rank = at.ctx.rank(at.node, value)
    order = list(range(rank))
    if batch_behind and rank > 2:
        order = [*range(1, rank - 1), 0, rank - 1]
    if swapped and rank > 1:
        order[-2:] = order[:-3:-1]
    if order == list(range(rank)):
        return value
    return at.real("Transpose", [value], {"perm": tuple(order)}, role=f"turned {'ab'[index]}")


def _gemm(at: Derived) -> None:
    """FusedGemm(A, B, C?){attributes of Gemm, activation, activation_alpha, activation_beta, activation_gamma}:
    activation(Gemm(A, B, C)).
    """
    inputs = [name for name in at.node.inputs if name]
    attrs = {name: at.node.attrs[name] for name in ("alpha", "beta", "transA", "transB")}
    value = at.real("Gemm", inputs, attrs)
    activated(at, value, at.node.attrs["activation"], _named_parameters(at), at.node.output(0))


def _named_parameters(at: Derived) -> list[float | None]:
    """The parameters of its activation, which have names."""
    wanted = _ACTIVATIONS.get(at.node.attrs["activation"], ())
    return [at.node.attrs.get(f"activation_{name}") for name in wanted]


# -- gelus -----------------------------------------------------------------------------------------


def _gelu(approximate: str) -> Callable[[Derived], None]:
    def run(at: Derived) -> None:
        """Gelu, BiasGelu, FastGelu(X, bias?): the gelu of X + bias, FastGelu by its form with tanh."""
        value = _biased(at, at.input(0), at.input(1))
        at.real("Gelu", [value], {"approximate": approximate}, output=at.node.output(0))

    return run


def _quick_gelu(at: Derived) -> None:
    """QuickGelu(X){alpha}: X * sigmoid(alpha * X)."""
    at.real("Swish", [at.input(0)], kept(at, {"alpha": 1.0}), output=at.node.output(0))


def _gemm_gelu(at: Derived) -> None:
    """GemmFastGelu(X, W, bias?): the gelu of X @ W + bias by its form with tanh."""
    value = _biased(at, at.real("MatMul", [at.input(0), at.input(1)], role="product"), at.input(2))
    at.real("Gelu", [value], {"approximate": "tanh"}, output=at.node.output(0))


def _split_gelu(at: Derived) -> None:
    """BiasSplitGelu(X, bias): one half of X + bias along the last axis, times the gelu of the other."""
    first, second = at.pieces(_biased(at, at.input(0), at.input(1)), -1, count=2)
    gate = at.real("Gelu", [second], role="gate")
    at.real("Mul", [first, gate], output=at.node.output(0))


# -- sums, and what is behind them -----------------------------------------------------------------


def _biased(at: Derived, value: str, bias: str) -> str:
    return at.real("Add", [value, bias], role="bias") if bias else value


def _sum(at: Derived, first: str, second: str, bias: str, output: str = "") -> str:
    """first + second + bias. The bias is added first where the product is, which takes it in."""
    graph = at.ctx.graph
    if bias:
        producers = [graph.producer(value) for value in (first, second)]
        products = [node is not None and node.has(Trait.PRODUCT) for node in producers]
        if products == [False, True]:
            first, second = second, first
        first = _biased(at, first, bias)
    return at.real("Add", [first, second], role="sum", output=output)


def _normalized_sum(at: Derived) -> None:
    """SkipLayerNormalization(input, skip, gamma, beta?, bias?){epsilon}: LayerNormalization of input + skip + bias, which is the
    fourth output.
    """
    value = _sum(at, at.input(0), at.input(1), at.input(4), at.node.output(3))
    inputs = [name for name in (value, at.input(2), at.input(3)) if name]
    _normalized(at, "LayerNormalization", inputs)


def _simply_normalized_sum(at: Derived) -> None:
    """SkipSimplifiedLayerNormalization(input, skip, gamma, bias?){epsilon}: RMSNormalization of input + skip + bias, which is the
    fourth output.
    """
    value = _sum(at, at.input(0), at.input(1), at.input(3), at.node.output(3))
    _normalized(at, "RMSNormalization", [value, at.input(2)])


def _normalized(at: Derived, op: str, inputs: Sequence[str]) -> None:
    attrs = {"axis": -1, "epsilon": at.node.attrs["epsilon"]}
    at.real(op, inputs, attrs, output=at.node.output(0))


def _simplified(at: Derived) -> None:
    """SimplifiedLayerNormalization(X, scale){axis, epsilon, stash_type}: RMSNormalization."""
    attrs = kept(at, {"axis": 0, "epsilon": 0, "stash_type": 0})
    at.real("RMSNormalization", at.node.inputs, attrs, output=at.node.output(0))


def _normalized_by_root(at: Derived) -> None:
    """RMSNormalization(X, scale){axis, epsilon, stash_type}: X / sqrt(mean(X^2) + epsilon) * scale, the mean over the axes from
    `axis` on.
    """
    value = at.input(0)
    first = at.node.attrs["axis"]
    axes = range(first, at.ctx.rank(at.node, value) if first >= 0 else 0)
    square = at.real("Mul", [value, value], role="square")
    over = {"axes": tuple(axes), "keepdims": 1}
    mean = at.real("ReduceMean", [square], over, role="mean", version=_AXES_GIVEN)
    epsilon = constant_like(at, "epsilon", float(at.node.attrs["epsilon"]), value)
    root = at.real("Sqrt", [at.real("Add", [mean, epsilon], role="sum")], role="root")
    normalized = at.real("Div", [value, root], role="normalized")
    at.real("Mul", [normalized, at.input(1)], output=at.node.output(0))


def _biased_sum(at: Derived) -> None:
    """BiasAdd(X, bias, skip): X + bias + skip."""
    _sum(at, at.input(0), at.input(2), at.input(1), at.node.output(0))


def _biased_dropout(at: Derived) -> None:
    """BiasDropout(data, bias, residual?, ratio?, training_mode?){seed}: data + bias + residual, at inference."""
    training = at.data(at.input(4), "training_mode") if at.input(4) else np.asarray(False)
    if training.any():
        raise UnsupportedOp(
            "BiasDropout in training mode",
            where=at.node.where,
            hint="export the model for inference",
        )
    output = at.node.output(0)
    if at.input(2):
        _sum(at, at.input(0), at.input(2), at.input(1), output)
    else:
        at.real("Add", [at.input(0), at.input(1)], output=output)


def _softmax(at: Derived) -> None:
    """BiasSoftmax(data, bias){axis, is_inner_broadcast}: the softmax of data + bias over all axes from `axis` on, taken together."""
    value = _biased(at, at.input(0), at.input(1))
    flattening = 11  # the newest opset whose Softmax takes axes together
    attrs = kept(at, {"axis": 1})
    at.real("Softmax", [value], attrs, output=at.node.output(0), version=flattening)


def _group_normalization(at: Derived) -> None:
    """GroupNorm(X, gamma, beta){groups, epsilon, activation, channels_last}: GroupNormalization, activation 1 a swish behind it."""
    _grouped(at, at.input(0))


def _normalized_groups_of_sum(at: Derived) -> None:
    """SkipGroupNorm(X, gamma, beta, skip, bias?): a GroupNorm of X + skip + bias, which is the second output."""
    _grouped(at, _sum(at, at.input(0), at.input(3), at.input(4), at.node.output(1)))


def _grouped(at: Derived, value: str) -> None:
    attrs, last = at.node.attrs, bool(at.node.attrs["channels_last"])
    kind = at.ctx.type(value).dtype  # gamma and beta are f32 beside half floats
    parameters = [at.ctx.cast(at.node, at.input(i), kind, f"parameter {i}") for i in (1, 2)]
    steps = [("GroupNormalization", parameters, _grouping(attrs))]
    if attrs["activation"] not in (0, 1):
        raise at.node.invalid(f"the attribute activation of {at.node.op} is {attrs['activation']}")
    if attrs["activation"]:
        steps.append(("Swish", [], {"alpha": 1.0}))
    if last:
        rank = at.ctx.rank(at.node, value)
        first, back = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
        steps = [("Transpose", [], {"perm": first}), *steps, ("Transpose", [], {"perm": back})]
    for index, (op, others, given) in enumerate(steps):
        output = at.node.output(0) if index == len(steps) - 1 else ""
        value = at.real(op, [value, *others], given, role=f"{op} {index}", output=output)


def _grouping(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {"num_groups": attrs["groups"], "epsilon": attrs["epsilon"]}


# -- ONNX's own under other names ------------------------------------------------------------------


def _triangle(at: Derived) -> None:
    """Trilu(X, k?){upper}: ONNX's."""
    at.real("Trilu", at.node.inputs, kept(at, {"upper": 1}), output=at.node.output(0))


def _grid_sample(at: Derived) -> None:
    """GridSample(X, Grid){align_corners, mode, padding_mode}: ONNX's, whose modes are called linear and cubic."""
    mode = at.node.attrs["mode"]
    if mode not in _GRID_MODES:
        raise at.node.invalid(f"the mode of {at.node.op} is none of {', '.join(_GRID_MODES)}")
    attrs = {**kept(at, {"align_corners": 0, "padding_mode": ""}), "mode": _GRID_MODES[mode]}
    at.real("GridSample", at.node.inputs, attrs, output=at.node.output(0))


_GRID_MODES: Final = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
_PRODUCT: Final = {"alpha": 1.0, "transA": 0, "transB": 0}
_BATCHED: Final = {**_PRODUCT, "transBatchA": 0, "transBatchB": 0}
_NAMED: Final = {"activation_alpha": None, "activation_beta": None, "activation_gamma": None}
_EPSILON: Final = {"epsilon": 1e-12}
_SUMS: Final = "output mean- inv_std_var- input_skip_bias_sum?"
_GROUPS: Final = {"groups": int, "epsilon": 1e-5, "activation": int, "channels_last": 1}

_ROWS: Final[Mapping[str, Form]] = {
    "FusedConv": Form("X W B? Z?", "Y", _convolution, FUSED_CONVOLUTION),
    "FusedMatMul": Form("A B", "Y", _matrix_product, _BATCHED),
    "FusedMatMulActivation": Form(
        "A B",
        "Y",
        _activated_product,
        {**_BATCHED, **_NAMED, "activation": str},
        {"activation_axis": 0},
    ),
    "FusedGemm": Form("A B C?", "Y", _gemm, {**_PRODUCT, "beta": 1.0, **_NAMED, "activation": ""}),
    "GemmFastGelu": Form("X W bias?", "Y", _gemm_gelu),
    "Gelu": Form("X", "Y", _gelu("none")),
    "BiasGelu": Form("A B", "C", _gelu("none")),
    "FastGelu": Form("X bias?", "Y", _gelu("tanh")),
    "QuickGelu": Form("X", "Y", _quick_gelu, {"alpha": 1.702}),
    "BiasSplitGelu": Form("X bias", "Y", _split_gelu),
    "SkipLayerNormalization": Form(
        "input skip gamma beta? bias?", _SUMS, _normalized_sum, _EPSILON
    ),
    "SkipSimplifiedLayerNormalization": Form(
        "input skip gamma bias?", _SUMS, _simply_normalized_sum, _EPSILON
    ),
    "GroupNorm": Form("X gamma beta", "Y", _group_normalization, _GROUPS),
    "SkipGroupNorm": Form("X gamma beta skip bias?", "Y S?", _normalized_groups_of_sum, _GROUPS),
    "BiasAdd": Form("X bias skip", "Y", _biased_sum),
    "BiasDropout": Form(
        "data bias residual? ratio? training_mode?", "output", _biased_dropout, {"seed": 0}
    ),
    "BiasSoftmax": Form("data bias", "output", _softmax, {"axis": 1, "is_inner_broadcast": int}),
    "Trilu": Form("X k?", "Y", _triangle, {"upper": 1}),
    "GridSample": Form(
        "X Grid",
        "Y",
        _grid_sample,
        {"align_corners": 0, "mode": "bilinear", "padding_mode": "zeros"},
    ),
}

_OVER_LAST_AXES: Final = {"axis": -1, "epsilon": 1e-5, "stash_type": 1}
_OF_ONNX: Final[Mapping[str, Form]] = {
    "RMSNormalization": Form("X scale", "Y", in_f32(_normalized_by_root), _OVER_LAST_AXES),
    "SimplifiedLayerNormalization": Form("X scale", "Y inv_std_var-", _simplified, _OVER_LAST_AXES),
}

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    **handlers(MICROSOFT, _ROWS),
    **handlers(DEFAULT_DOMAIN, _OF_ONNX),
}
