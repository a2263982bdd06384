"""Sequences and optionals across the borders of bodies: the tensors that hold them go in and come out.

In front of a body's own nodes a node `Whole` makes a sequence of them, and behind these a node `Parts` takes one
apart. Both are the import's own: no file has their domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from onnx import GraphProto, NodeProto, TypeProto, ValueInfoProto, helper

from ...ir.element_types import DTYPES, ELEMENT_TYPES
from ...ir.ports import COUNTS, PACKED, ROWS, TENSOR
from ...ir.types import DType
from ..bodies import has_bodies
from ..held import Maybe, Packed, Rows, Tensors
from ..importer import Handler, Importer
from ..nodes import OnnxNode, origin_of_proto
from ..structure import captured_names, read_of_others
from . import packed
from .derived import Derived, written
from .foreign import types_of_first_trip

DOMAIN: Final = "fqfuse.borders"
_FRONT: Final = {"If": 1, "Loop": 2, "Scan": 0}
"""Operator -> inputs of the node in front of the states that its body takes."""
_COUNTERS: Final = {"Loop": 2}
"""Operator -> inputs of the body in front of its states."""
_CONDITIONS: Final = {"Loop": 1}
"""Operator -> outputs of the body in front of its states."""


@dataclass(frozen=True)
class Form:
    """What crosses a border.

    Attributes:
        holds: `tensor`, `rows` or `packed`, as `ir.ports` has them.
        optional: a bool in front says whether there is something.
        dtype: of the elements.
    """

    holds: str
    optional: bool
    dtype: DType

    @property
    def parts(self) -> int:
        """How many tensors cross."""
        return self.optional + COUNTS[self.holds]


def with_captured(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """An If, Loop or Scan whose bodies read no sequence and no optional of the graph around them, but the tensors
    that hold it. Any other node as it is.
    """
    read = [name for name in captured_names(node.proto) if is_held(ctx, name)]
    if not read or not has_bodies(node):
        return node
    ctx.opsets[DOMAIN] = 1
    at, bodies = Derived(ctx, node), _bodies(node)
    for name in read:
        _hand_in(at, bodies, name)
    changed = node.rewritten(**bodies)
    return replace(changed, proto=changed.as_proto())


def with_states(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """An If, Loop or Scan that hands on and returns the tensors that hold sequences and optionals in their place;
    what it returns is noted. Any other node as it is.
    """
    if not has_bodies(node):
        return node
    front, bodies = _FRONT[node.op], _bodies(node)
    states = {p: name for p, name in enumerate(node.inputs[front:]) if is_held(ctx, name)}
    returned = _returned(node, bodies, ctx, states)
    if not (states or returned):
        return node
    ctx.opsets[DOMAIN] = 1
    at = Derived(ctx, node)
    for body in bodies.values():
        _change(ctx, node, body, {p: returned[p] for p in states}, returned)
    fed: list[str] = [*node.inputs[:front]]
    for place, name in enumerate(node.inputs[front:]):
        fed += parts(at, name, returned[place]) if place in states else [name]
    changed = node.rewritten(inputs=fed, outputs=_outputs(at, returned), **bodies)
    changed = replace(changed, proto=changed.as_proto())
    return _with_ranks(ctx, changed, node, states, returned)


def _bodies(node: OnnxNode) -> dict[str, GraphProto]:
    """Copies of the bodies of a node."""
    return {
        name: GraphProto.FromString(body.SerializeToString())
        for name, body in node.attrs.items()
        if isinstance(body, GraphProto)
    }


def is_held(ctx: Importer, name: str) -> bool:
    """True of a sequence or an optional."""
    return name in ctx.sequences or name in ctx.optionals


def alias(ctx: Importer, name: str, held: str) -> None:
    """Notes that a name stands for the sequence or optional that another one is."""
    if held in ctx.sequences:
        ctx.sequences[name] = ctx.sequences[held]
    if held in ctx.optionals:
        ctx.optionals[name] = ctx.optionals[held]


def _returned(
    node: OnnxNode, bodies: Mapping[str, GraphProto], ctx: Importer, states: Mapping[int, str]
) -> dict[int, Form]:
    """Output of the node -> how what it returns crosses."""
    at = Derived(ctx, node)
    if node.op != "If":
        body = next(iter(bodies.values()), GraphProto())
        return {
            place: form_of(at, name, _input_type(node, body, place))
            for place, name in states.items()
        }
    found = {}
    for body in bodies.values():
        for place, value in enumerate(body.output):
            form = declared_form(value.type)
            if form is not None and (place not in found or form.optional):
                found[place] = form
            elif form is None and value.name in ctx.sequences and place not in found:
                found[place] = form_of(at, value.name, TypeProto())
    return found


def _input_type(node: OnnxNode, body: GraphProto, place: int) -> TypeProto:
    index = _COUNTERS.get(node.op, 0) + place
    return body.input[index].type if index < len(body.input) else TypeProto()


def declared_form(type_: TypeProto) -> Form | None:
    """How what the model declares so crosses; None for a tensor, and where it declares nothing."""
    kind, optional = type_.WhichOneof("value"), False
    if kind == "optional_type":
        type_, optional = type_.optional_type.elem_type, True
        kind = type_.WhichOneof("value")
    if kind == "sequence_type":
        type_ = type_.sequence_type.elem_type
        if type_.WhichOneof("value") not in (None, "tensor_type"):
            return None
    elif not optional:
        return None
    element = type_.tensor_type.elem_type
    dtype = DTYPES.get(element, DType.F32)
    return Form(PACKED if kind == "sequence_type" else TENSOR, optional, dtype)


def form_of(at: Derived, name: str, declared: TypeProto) -> Form:
    """How a sequence or an optional of this graph crosses."""
    ctx = at.ctx
    told = declared_form(declared)
    maybe = ctx.optionals.get(name)
    held = ctx.sequences.get(name if maybe is None else maybe.held)
    if held is not None:
        dtype = packed.dtype_of(at, held) or (told.dtype if told else DType.F32)
        return Form(PACKED, maybe is not None, dtype)
    if maybe is not None and maybe.held:
        return Form(TENSOR, True, ctx.type(maybe.held).dtype)
    if told is None:
        raise at.node.invalid(
            f"nothing says what the optional {name!r} could hold",
            "declare the type of the body's input",
        )
    return told


def parts(at: Derived, name: str, form: Form) -> list[str]:
    """The tensors that hold a sequence or an optional, or a tensor that stands for an optional with it."""
    ctx = at.ctx
    maybe = ctx.optionals.get(name)
    inner = name if maybe is None else maybe.held
    there = "" if maybe is None else maybe.there
    if form.optional and not there:
        there = ctx.add_constant(at.node, "there", bool(inner), DType.BOOL)
    front = [there] if form.optional else []
    held = ctx.sequences.get(inner)
    if form.holds == TENSOR:
        if held is not None:
            raise at.node.invalid(f"{name!r} is a sequence, where a tensor is declared")
        nothing = np.empty(0, form.dtype.numpy)
        return [*front, inner or ctx.add_constant(at.node, "nothing", nothing, form.dtype)]
    if held is None and inner:
        raise at.node.invalid(f"{name!r} is a tensor, where a sequence is declared")
    whole = packed.packed(at, Tensors((), form.dtype) if held is None else held, form.dtype)
    return [*front, whole.data, whole.sizes]


def whole(ctx: Importer, name: str, form: Form, values: Sequence[str]) -> None:
    """Notes that a name stands for what these tensors hold."""
    there, *rest = values if form.optional else ("", *values)
    if form.holds == TENSOR:
        ctx.optionals[name] = Maybe(rest[0], there)
        return
    held = Rows(rest[0]) if form.holds == ROWS else Packed(rest[0], rest[1])
    if form.optional:
        inner = ctx.fresh(f"{name}.sequence")
        ctx.sequences[inner] = held
        ctx.optionals[name] = Maybe(inner, there)
    else:
        ctx.sequences[name] = held


# -- bodies --------------------------------------------------------------------------------------------


def _hand_in(at: Derived, bodies: Mapping[str, GraphProto], name: str) -> None:
    """Gives bodies what they read of the graph around them."""
    ctx = at.ctx
    maybe, held = ctx.optionals.get(name), ctx.sequences.get(name)
    if isinstance(held, Rows):
        form, values = Form(ROWS, False, ctx.type(held.value).dtype), [held.value]
    else:
        # of which type what it does not hold is, does not matter
        nothing = maybe is not None and not maybe.held
        form = Form(TENSOR, True, DType.F32) if nothing else form_of(at, name, TypeProto())
        values = parts(at, name, form)
    for body in bodies.values():
        if name in read_of_others(body):
            _prepend(body, [_whole_node(values, name, form)])


def _change(
    ctx: Importer,
    node: OnnxNode,
    body: GraphProto,
    taken: Mapping[int, Form],
    returned: Mapping[int, Form],
) -> None:
    """Lets the parts of states and results cross the borders of a body."""
    front, behind = _COUNTERS.get(node.op, 0), _CONDITIONS.get(node.op, 0)
    inputs, nodes = [], []
    for index, value in enumerate(body.input):
        form = taken.get(index - front)
        if form is None:
            inputs.append(value)
            continue
        names = [ctx.fresh(f"{value.name}.{part}") for part in range(form.parts)]
        inputs += [ValueInfoProto(name=name) for name in names]
        nodes.append(_whole_node(names, value.name, form))
    outputs, last = [], []
    for index, value in enumerate(body.output):
        form = returned.get(index - behind)
        if form is None:
            outputs.append(value)
            continue
        names = [ctx.fresh(f"{value.name}.returned.{part}") for part in range(form.parts)]
        outputs += [ValueInfoProto(name=name) for name in names]
        last.append(_parts_node(value.name, names, form, _maker_of(body, value.name)))
    kept = [ValueInfoProto.FromString(v.SerializeToString()) for v in (*inputs, *outputs)]
    del body.input[:], body.output[:]
    body.input.extend(kept[: len(inputs)])
    body.output.extend(kept[len(inputs) :])
    body.node.extend(last)
    _prepend(body, nodes)


def _prepend(body: GraphProto, nodes: Sequence[NodeProto]) -> None:
    kept = [NodeProto.FromString(node.SerializeToString()) for node in (*nodes, *body.node)]
    del body.node[:]
    body.node.extend(kept)


def _outputs(at: Derived, returned: Mapping[int, Form]) -> list[str]:
    outputs = []
    for place, name in enumerate(at.node.outputs):
        form = returned.get(place)
        if form is None:
            outputs.append(name)
            continue
        names = [at.ctx.fresh(f"{name or at.node.name}.part{part}") for part in range(form.parts)]
        outputs += names
        if name:
            whole(at.ctx, name, form, names)
    return outputs


def _with_ranks(
    ctx: Importer,
    changed: OnnxNode,
    node: OnnxNode,
    states: Mapping[int, str],
    returned: Mapping[int, Form],
) -> OnnxNode:
    """The Loop with the ranks of what its first trip returns for the sequences that it begins empty: where
    there is no tensor they may have any.
    """
    begun = [place for place, name in states.items() if _is_empty(ctx, name)]
    if node.op != "Loop" or not begun:
        return changed
    found = types_of_first_trip(ctx, changed)
    inputs, index = [*changed.inputs], 0
    for place in range(len(node.inputs) - _FRONT["Loop"]):
        form = returned.get(place)
        count = 1 if form is None else form.parts
        if place in begun and found:
            shape = found[index + count - 1].shape
            rank = shape[1] if shape is not None and len(shape) == 2 else 0
            if isinstance(rank, int) and rank:
                sizes = Derived(ctx, node).integers("no shapes", np.empty((0, rank), np.int64))
                inputs[_FRONT["Loop"] + index + count - 1] = sizes
        index += count
    again = changed.rewritten(inputs=inputs)
    return replace(again, proto=again.as_proto())


def _is_empty(ctx: Importer, name: str) -> bool:
    maybe = ctx.optionals.get(name)
    held = ctx.sequences.get(name if maybe is None else maybe.held)
    return isinstance(held, Tensors) and not held.tensors


# -- the nodes -----------------------------------------------------------------------------------------


def _whole_node(values: Sequence[str], name: str, form: Form) -> NodeProto:
    return _node("Whole", values, [name], form)


def _parts_node(name: str, values: Sequence[str], form: Form, maker: str) -> NodeProto:
    node = _node("Parts", [name], values, form)
    node.name = maker  # what it adds is of a node of the file
    return node


def _maker_of(body: GraphProto, value: str) -> str:
    """The name of the node of a body that makes a value; of what it is given, the value's."""
    return next((origin_of_proto(node) for node in body.node if value in node.output), value)


def _node(op: str, inputs: Sequence[str], outputs: Sequence[str], form: Form) -> NodeProto:
    return helper.make_node(
        op,
        list(inputs),
        list(outputs),
        domain=DOMAIN,
        holds=form.holds,
        optional=int(form.optional),
        element=ELEMENT_TYPES[form.dtype],
    )


def _form(at: Derived) -> Form:
    holds, optional, element = (at.node.attr(name) for name in ("holds", "optional", "element"))
    return Form(str(holds), bool(optional), DTYPES[int(element)])


def _whole(at: Derived) -> None:
    whole(at.ctx, at.node.output(0), _form(at), at.node.inputs)


def _parts(at: Derived) -> None:
    values = parts(at, at.input(0), _form(at))
    for value, name in zip(values, at.node.outputs, strict=True):
        at.real("Identity", [value], output=name, role=f"returns {name}")


BORDERS: Final[Mapping[tuple[str, str], Handler]] = {
    (DOMAIN, "Whole"): written(_whole),
    (DOMAIN, "Parts"): written(_parts),
}
"""(domain, op) -> handler of what stands at the borders of bodies."""
