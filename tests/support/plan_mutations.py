"""Plans with one to three things changed, as a seed draws them, sealed again: what someone who
knows the format may write.

Two kinds of change. In the file: nodes, attributes, tensors, types and metadata as ONNX has them.
In the plan: steps, parameters, attributes, types and constants as fqfuse has them, so that a change
gets past the reader; half of these are told the truth about again (the types that their steps give
now), so that it gets past the verifier where it can.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto

from fqfuse.errors import FqfuseError
from fqfuse.ir.algorithms import BINARY, ELTWISE
from fqfuse.ir.constants import for_types
from fqfuse.ir.ops import OPS
from fqfuse.ir.types import DType, Quantization, TensorType
from fqfuse.plan import file as plan_file
from fqfuse.plan import verify_shapes
from fqfuse.plan.attributes import (
    Binary,
    DepthwiseConv,
    Eltwise,
    Prelu,
    PrimitiveAttr,
    Scale,
    Sum,
    ZeroPoint,
)
from fqfuse.plan.seal import seal
from fqfuse.plan.shapes import step_types
from fqfuse.plan.types import Plan

INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    4,
    5,
    7,
    8,
    16,
    17,
    127,
    255,
    256,
    -2,
    -128,
    1 << 15,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 63) - 1,
    -(1 << 63),
)
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    3.0,
    127.5,
    1e-45,
    1e-20,
    1e20,
    3.4e38,
    1e300,
    float("inf"),
    float("-inf"),
    float("nan"),
)
WORDS = (
    "",
    "NOTSET",
    "SAME_UPPER",
    "SAME_LOWER",
    "VALID",
    "linear",
    "nearest",
    "cubic",
    "floor",
    "edge",
    "reflect",
    "wrap",
    "tanh",
    "asymmetric",
)
OPERATORS = (
    "Add",
    "Loop",
    "If",
    "Tile",
    "Expand",
    "Range",
    "ConstantOfShape",
    "Pad",
    "Resize",
    "NonZero",
    "OneHot",
    "Gather",
    "Einsum",
    "Where",
    "Cast",
    "Tan",
    "Upsample",
    "RandomNormal",
    "EyeLike",
    "Identity",
    "CumSum",
    "TopK",
    "LSTM",
    "SequenceAt",
    "Unique",
    "Compress",
    "GridSample",
    "Split",
    "Bernoulli",
)


class Draw(random.Random):
    """The draws of one mutant."""

    def integer(self) -> int:
        return self.choice(INTEGERS) if self.random() < 0.7 else self.randint(-4, 40)

    def number(self) -> float:
        return self.choice(FLOATS) if self.random() < 0.7 else self.uniform(-4, 4)

    def anything(self) -> Any:
        kind = self.randrange(7)
        if kind == 6:
            return tuple(self.integer() for _ in range(self.randint(0, 5)))
        return (
            self.integer(),
            self.number(),
            self.choice(WORDS),
            self.choice(list(DType)),
            None,
            bool(self.getrandbits(1)),
        )[kind]

    def items(self, values: Sequence[Any]) -> list[Any]:
        """A list with one thing in it changed: dropped, repeated, swapped with another, or another
        value.
        """
        found = list(values)
        kind = self.randrange(5)
        if not found or kind == 0:
            return [*found, self.varied(found[0]) if found else self.integer()]
        at = self.randrange(len(found))
        if kind == 1:
            del found[at]
        elif kind == 2:
            other = self.randrange(len(found))
            found[at], found[other] = found[other], found[at]
        else:
            found[at] = self.varied(found[at])
        return found

    def varied(self, value: Any) -> Any:
        """Mostly another value of the same kind."""
        if self.random() < 0.05:
            return self.anything()
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return value + self.choice((-1, 1)) if self.random() < 0.3 else self.integer()
        if isinstance(value, float):
            return (
                value * self.choice((-1.0, 0.5, 2.0, 1e10))
                if self.random() < 0.3
                else self.number()
            )
        if isinstance(value, str):
            return self.choice(WORDS)
        if isinstance(value, DType):
            return self.choice(list(DType))
        if isinstance(value, tuple):
            return tuple(self.items(value))
        return self.anything()


# -- in the file -----------------------------------------------------------------------------------


def _tuned(draw: Draw, attribute: AttributeProto) -> None:
    """Another value in an attribute, or another type of it."""
    given = onnx.helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.TENSOR:
        _tensor(draw, attribute.t)
        return
    if attribute.type == AttributeProto.GRAPH:
        _inside(draw, attribute.g)
        return
    value = draw.varied(
        tuple(given)
        if not isinstance(given, int | float | bytes | str)
        else given.decode()
        if isinstance(given, bytes)
        else given
    )
    name = attribute.name
    attribute.Clear()
    attribute.name = name
    if isinstance(value, bool | int):
        attribute.type, attribute.i = AttributeProto.INT, int(value)
    elif isinstance(value, float):
        attribute.type = AttributeProto.FLOAT
        attribute.f = float("inf") if abs(value) >= 3e38 else value
    elif isinstance(value, str):
        attribute.type, attribute.s = AttributeProto.STRING, value.encode()
    elif isinstance(value, tuple) and all(isinstance(v, str | bytes) for v in value):
        attribute.type = AttributeProto.STRINGS
        attribute.strings.extend(v if isinstance(v, bytes) else v.encode() for v in value)
    elif isinstance(value, tuple) and any(isinstance(v, float) for v in value):
        attribute.type = AttributeProto.FLOATS
        attribute.floats.extend(
            float(v) if isinstance(v, int | float) and abs(v) < 3e38 else 0.0 for v in value
        )
    else:
        attribute.type = AttributeProto.INTS
        attribute.ints.extend(int(v) for v in value if isinstance(v, int)) if isinstance(
            value, tuple
        ) else None


def _inside(draw: Draw, graph: onnx.GraphProto) -> None:
    """A change in the graph of an If, Loop or Scan."""
    if graph.initializer and draw.random() < 0.4:
        _tensor(draw, draw.choice(graph.initializer))
    elif graph.node:
        _node(
            draw,
            draw.choice(graph.node),
            [name for node in graph.node for name in (*node.input, *node.output)],
        )


def _node(draw: Draw, node: onnx.NodeProto, names: Sequence[str]) -> None:
    kind = draw.randrange(9)
    if kind == 0:
        node.op_type = draw.choice(
            (*OPS, *OPERATORS, "Convolution", "Eltwise", "Binary", "Reorder", "Softmax", "Pooling")
        )
    elif kind == 1:
        node.domain = draw.choice(("", "fqfuse", "ai.onnx.ml", "com.microsoft", "x"))
    elif kind in (2, 3):
        part = draw.choice((node.input, node.output))
        found = list(part)
        if found and draw.random() < 0.7:
            found[draw.randrange(len(found))] = draw.choice((*names, ""))
        else:
            found = [
                str(name) if isinstance(name, str) else draw.choice(names)
                for name in draw.items(found)
            ]
        del part[:]
        part.extend(found)
    elif kind == 4 and node.attribute:
        del node.attribute[draw.randrange(len(node.attribute))]
    elif kind == 5 and node.metadata_props:
        _told(draw, draw.choice(node.metadata_props))
    elif node.attribute:
        _tuned(draw, draw.choice(node.attribute))


def _told(draw: Draw, entry: Any) -> None:
    """A change in a text: a number, a character, a piece."""
    text = entry.value
    numbers = [i for i, c in enumerate(text) if c.isdigit()]
    if numbers and draw.random() < 0.6:
        at = draw.choice(numbers)
        entry.value = text[:at] + str(draw.integer()) + text[at + 1 :]
        return
    at = draw.randrange(len(text) + 1)
    entry.value = (
        text[:at]
        + draw.choice(("", "null", "true", "[]", "-", '"x"', "0"))
        + text[at + draw.randint(0, 3) :]
    )


def _tensor(draw: Draw, tensor: onnx.TensorProto) -> None:
    kind = draw.randrange(4)
    if kind == 0:
        tensor.data_type = draw.choice((1, 2, 3, 6, 7, 9, 10, 11, 12))
    elif kind == 1:
        dims = [
            d if isinstance(d, int) and -(1 << 63) <= d < 1 << 63 else 1
            for d in draw.items(list(tensor.dims))
        ]
        del tensor.dims[:]
        tensor.dims.extend(dims)
    elif tensor.raw_data:
        raw = bytearray(tensor.raw_data)
        for _ in range(draw.randint(1, 4)):
            raw[draw.randrange(len(raw))] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))
        tensor.raw_data = bytes(
            raw[: -draw.randint(1, 4)] if kind == 2 and draw.random() < 0.3 else raw
        )


def _typed(draw: Draw, info: onnx.ValueInfoProto) -> None:
    tensor = info.type.tensor_type
    if draw.random() < 0.4:
        tensor.elem_type = draw.choice((0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 16, 21, 22))
        del info.metadata_props[:]
    elif tensor.shape.dim:
        dim = draw.choice(tensor.shape.dim)
        if draw.random() < 0.3:
            dim.dim_param = draw.choice(("N", "M", "?", "", "2*N", "N+-1"))
        else:
            dim.dim_value = draw.integer()
    else:
        tensor.ClearField("shape")


def _in_the_file(draw: Draw, model: onnx.ModelProto) -> None:
    graph = model.graph
    names = [name for node in graph.node for name in (*node.input, *node.output)] or ["x"]
    kind = draw.randrange(14)
    if kind == 0 and graph.node:
        del graph.node[draw.randrange(len(graph.node))]
    elif kind == 1 and graph.node:
        graph.node.append(draw.choice(graph.node))
    elif kind == 2 and len(graph.node) > 1:
        a, b = draw.sample(range(len(graph.node)), 2)
        first, second = onnx.NodeProto(), onnx.NodeProto()
        first.CopyFrom(graph.node[a])
        second.CopyFrom(graph.node[b])
        graph.node[a].CopyFrom(second)
        graph.node[b].CopyFrom(first)
    elif kind in (3, 4) and graph.initializer:
        _tensor(draw, draw.choice(graph.initializer))
    elif kind in (5, 6):
        infos = [*graph.input, *graph.output, *graph.value_info]
        _typed(draw, draw.choice(infos)) if infos else None
    elif kind == 7:
        _told(
            draw,
            draw.choice([entry for entry in model.metadata_props if entry.key != "fqfuse.digest"]),
        )
    elif graph.node:
        _node(draw, draw.choice(graph.node), names)


# -- in the plan -----------------------------------------------------------------------------------


def _type_of(draw: Draw, plan: Plan) -> Plan:
    name = draw.choice(list(plan.values))
    old = plan.values[name]
    kind = draw.randrange(4)
    if kind == 0:
        new = replace(old, dtype=draw.choice(list(DType)), quant=None)
    elif kind == 1:
        quant = Quantization((abs(draw.number()) or 1.0,), (float(draw.randint(-3, 300)),))
        new = old.with_quant(None if old.quant else quant)
    elif old.shape is None:
        new = replace(old, shape=("N",))
    else:
        new = replace(
            old,
            shape=tuple(
                d if isinstance(d, str | int) and not isinstance(d, bool) else 1
                for d in draw.items(old.shape)
            ),
            quant=None,
        )
    return _with(plan, values={**plan.values, name: new})


def _constant(draw: Draw, plan: Plan) -> Plan:
    if not plan.constants:
        return plan
    name = draw.choice(list(plan.constants))
    data = plan.constants[name]
    kind = draw.randrange(6)
    if data.dtype.kind == "O":
        return plan
    if kind == 0:
        dtype = draw.choice([d for d in DType if d is not DType.STRING and not d.is_carried])
        with np.errstate(all="ignore"):
            data = data.astype(dtype.numpy)
    elif kind == 1:
        data = data.reshape(
            draw.choice(((-1,), (1, *data.shape), data.shape[::-1], (*data.shape, 1)))
        )
    elif kind == 2 and data.ndim:
        data = data[:-1] if draw.getrandbits(1) else np.concatenate([data, data])
    elif data.size:
        data = np.array(data)
        value = draw.number() if data.dtype.kind == "f" else draw.integer()
        low, high = (
            (-3e38, 3e38)
            if data.dtype.kind == "f"
            else (0, 1)
            if data.dtype.kind == "b"
            else (np.iinfo(data.dtype).min, np.iinfo(data.dtype).max)
        )
        with np.errstate(all="ignore"):
            data.reshape(-1)[draw.randrange(data.size)] = (
                value if data.dtype.kind == "f" else min(max(int(value), int(low)), int(high))
            )
    return _with(plan, constants={**plan.constants, name: data})


def _step(draw: Draw, plan: Plan) -> Plan:
    """Another identity, arguments, parameters or attributes of a step."""
    index = draw.randrange(len(plan.steps))
    step, other = plan.steps[index], draw.choice(plan.steps)
    known = [*plan.values, *plan.constants]
    kind = draw.randrange(12)
    if kind == 0:
        step = replace(
            step,
            primitive=draw.choice(
                (*verify_shapes.SCHEMAS, *(f"onnx.{op}" for op in OPS), other.primitive)
            ),
        )
    elif kind == 1:
        step = replace(step, op=draw.choice((*OPS, other.op)))
    elif kind == 2:
        op = draw.choice(list(OPS))
        step = replace(
            step,
            op=op,
            primitive=f"onnx.{op}",
            args=tuple((p.name, v) for p, (_, v) in zip(OPS[op].inputs, step.args, strict=False)),
        )
    elif kind in (3, 4):
        args = [
            (role, draw.choice(known) if draw.random() < 0.5 else value)
            for role, value in step.args
        ]
        if draw.random() < 0.3:
            args.append(
                (
                    draw.choice(
                        (
                            "bias",
                            "src",
                            "src_1",
                            "src_2",
                            "x",
                            "weights",
                            "axes",
                            "sizes",
                            "roi",
                            "low",
                            "x_1",
                        )
                    ),
                    draw.choice(known),
                )
            )
        elif args and draw.random() < 0.3:
            del args[draw.randrange(len(args))]
        step = replace(step, args=tuple(args))
    elif kind in (5, 6, 7):
        row = OPS.get(step.op)
        names = [*step.params, *(row.attrs if row else ()), "alpha", "beta", "algorithm"]
        name = draw.choice(names)
        value = (
            draw.choice((*ELTWISE, *BINARY))
            if name == "algorithm" and draw.random() < 0.8
            else draw.varied(step.params.get(name, row.attrs.get(name) if row else 0))
        )
        params = {
            **step.params,
            name: value
            if value is None or isinstance(value, int | float | str | tuple | DType | bytes)
            else 1,
        }
        if draw.random() < 0.2:
            params.pop(name, None)
        step = replace(step, params=params)
    else:
        step = replace(step, attr=_attr(draw, plan, step.attr, other.attr))
    return _with(plan, steps=(*plan.steps[:index], step, *plan.steps[index + 1 :]))


def _scale(draw: Draw, old: Scale) -> Scale:
    kind = draw.randrange(3)
    if kind == 0:
        return Scale(old.values, draw.choice((0, 1, 2, 3, 4, 8, -1, 1 << 31)))
    return Scale(
        tuple(v if isinstance(v, float) else 1.0 for v in draw.items(old.values)), old.mask
    )


def _attr(draw: Draw, plan: Plan, attr: PrimitiveAttr, other: PrimitiveAttr) -> PrimitiveAttr:
    roles = ("src", "weights", "dst", "src_0", "src_1", "src_2", "bias")
    kind = draw.randrange(7)
    if kind == 0:
        return replace(
            attr,
            scales={
                **attr.scales,
                draw.choice(roles): Scale((draw.number(),), draw.choice((0, 0, 1, 2))),
            },
        )
    if kind == 1 and attr.scales:
        role = draw.choice(list(attr.scales))
        return replace(attr, scales={**attr.scales, role: _scale(draw, attr.scales[role])})
    if kind == 2:
        return replace(
            attr,
            zero_points={
                **attr.zero_points,
                draw.choice(roles): ZeroPoint(
                    (draw.choice((draw.integer(), draw.number())),), draw.choice((0, 0, 1))
                ),
            },
        )
    if kind == 3 and draw.random() < 0.3:
        name = draw.choice(("rnn_data_qparams", "rnn_weights_qparams"))
        kept = getattr(attr, name)
        pair = Scale((draw.number(), draw.number()), draw.choice((0, 0, 24)))
        return replace(attr, **{name: draw.choice((None, pair, kept and _scale(draw, kept)))})
    if kind == 3:
        return replace(
            other,
            output_scales=draw.choice((None, other.output_scales, Scale((draw.number(),), 0))),
        )
    ops = list(attr.post_ops)
    drawn = draw.choice((*other.post_ops, _post_op(draw, plan)))
    if ops and draw.random() < 0.6:
        at = draw.randrange(len(ops))
        ops[at] = _changed(draw, plan, ops[at]) if draw.random() < 0.7 else drawn
    else:
        ops.insert(draw.randint(0, len(ops)), drawn)
    if len(ops) > 1 and draw.random() < 0.2:
        draw.shuffle(ops)
    return replace(attr, post_ops=tuple(ops))


def _post_op(draw: Draw, plan: Plan) -> Any:
    value = draw.choice([*plan.values, *plan.constants])
    makers: tuple[Callable[[], Any], ...] = (
        lambda: Eltwise(
            draw.choice(sorted(ELTWISE)),
            draw.number(),
            draw.number(),
            draw.choice((1.0, 1.0, draw.number())),
        ),
        lambda: Binary(draw.choice(sorted(BINARY)), value),
        lambda: Sum(
            value,
            draw.number(),
            draw.choice((0, 0, draw.integer())),
            draw.choice((None, DType.U8, DType.S8, DType.F32)),
        ),
        lambda: Prelu(value, draw.choice((0, 1, 2, 3, 15))),
        lambda: DepthwiseConv(
            value,
            draw.choice(("", value)),
            draw.choice((1, 3, draw.integer())),
            draw.choice((1, 2, draw.integer())),
            draw.choice((0, 1)),
        ),
    )
    return draw.choice(makers)()


def _changed(draw: Draw, plan: Plan, op: Any) -> Any:
    name = draw.choice([f for f in vars(op) if f not in ("weights_scale", "dst_scale")])
    value = getattr(op, name)
    if name in ("operand", "weights", "bias"):
        return replace(op, **{name: draw.choice([*plan.values, *plan.constants])})
    if name == "algorithm":
        return replace(
            op, algorithm=draw.choice(sorted(ELTWISE if isinstance(op, Eltwise) else BINARY))
        )
    new = draw.varied(value)
    return (
        replace(op, **{name: new})
        if type(new) is type(value) or (name == "dtype" and isinstance(new, DType))
        else op
    )


def _order(draw: Draw, plan: Plan) -> Plan:
    steps = list(plan.steps)
    kind = draw.randrange(4)
    if kind == 0:
        return _with(plan, target=draw.choice(("onednn-v3", "onednn-v2", "unified")))
    if kind == 1:
        return _with(
            plan, outputs=tuple(draw.sample([*plan.values, *plan.constants], 1)) + plan.outputs
        )
    if kind == 2:
        del steps[draw.randrange(len(steps))]
    else:
        at = draw.randrange(len(steps))
        steps.insert(
            at,
            replace(
                steps[at], name="again", outputs=tuple(f"{v} again" for v in steps[at].outputs)
            ),
        )
        copies = {f"{v} again": plan.values[v] for v in steps[at + 1].outputs if v}
        return _with(plan, steps=tuple(steps), values={**plan.values, **copies})
    return _with(plan, steps=tuple(steps))


def _with(plan: Plan, **fields: Any) -> Plan:
    return Plan(**{**vars(plan), **fields})


def _told_truly(plan: Plan) -> Plan:
    """With the types that the steps give now, where one can tell; fates without the steps that they
    name.
    """
    values = dict(plan.values)
    for step in plan.steps:
        seen = _with(plan, values=values)
        try:
            exact = verify_shapes._is_exact(step)
            found = step_types(step, seen.type, partial(for_types, seen.constants), exact=exact)
        except Exception:  # noqa: BLE001, S112  # a broken step has no types: the verifier is to say so
            continue
        for value, type_ in zip(step.outputs, found, strict=False):
            if value in values:
                dtype = type_.dtype if step.primitive.startswith("onnx.") else values[value].dtype
                values[value] = TensorType(
                    dtype,
                    type_.shape,
                    values[value].quant
                    if values[value].shape == type_.shape and dtype is values[value].dtype
                    else None,
                )
    return _with(plan, values=values)


def mutant(plan: Plan, seed: int) -> bytes | None:
    """The file of a changed plan, with a digest that fits; None where the change cannot be written
    down.

    Args:
        plan: a sound plan.
        seed: what is changed, and how.
    """
    draw = Draw(seed)
    plan = (
        _with(plan, quantizers={}, fate_records=(), decision_records=plan.decision_records[:2])
        if draw.random() < 0.7
        else plan
    )
    changes = draw.choice((1, 1, 1, 2, 2, 3))
    inner = draw.random() < 0.65 and bool(plan.steps)
    if inner:
        for _ in range(changes):
            plan = (
                draw.choice((_step, _step, _step, _step, _type_of, _constant, _constant, _order))(
                    draw, plan
                )
                if plan.steps
                else plan
            )
        plan = _told_truly(plan) if draw.random() < 0.6 else plan
    try:
        model = onnx.ModelProto.FromString(b"".join(plan_file._content(plan, None)))
        del model.metadata_props[-1]  # the seal
        if not inner:
            for _ in range(changes):
                _in_the_file(draw, model)
        body = model.SerializeToString(deterministic=True)
    except (FqfuseError, ValueError, TypeError, KeyError, OverflowError, AttributeError):
        return None
    return body + seal(body)
