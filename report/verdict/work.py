"""The work of a step: multiply-adds, bytes, and the types that it computes in.

All of it follows from the plan's types. A size that is known at run time only counts as 1, or as the
caller says.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InvalidInput
from ...ir.ops import dims
from ...ir.types import Dim, DType, TensorType
from ...plan.attributes import DepthwiseConv
from ...plan.saturation import products_in_f32
from ...plan.shapes import bind_shapes
from ...plan.summation import ISAS
from ...plan.types import Plan, Step, runs_in_int8
from ...plan.verify_bodies import given_to

if TYPE_CHECKING:
    from .bodies import Body

EXACT_ISA = ISAS[0]
"""Of CPUs that multiply codes as such, whatever they are."""

SHAPES = frozenset({"onnx.Shape", "onnx.Size"})
"""Steps that ask for the sizes of what they read, and for none of its numbers."""

VIEWS = frozenset(
    f"onnx.{op}" for op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape")
)
"""Steps that move no data: another shape of the same memory."""

MOVES = (
    VIEWS
    | frozenset(
        f"onnx.{op}"
        for op in ("Transpose", "Slice", "Split", "Concat", "Expand", "Tile", "Pad", "DepthToSpace")
    )
    | {"onnx.SpaceToDepth", "onnx.SliceLike", "concat", "shuffle"}
)
"""Steps that only move what others computed."""

POOLINGS = frozenset({"pooling", "resampling"})
"""Steps that take codes as well as floats, and keep their scale."""

_MATMULS = frozenset({"MatMul", "MatMulBlocks", "MatMulInteger"})

PRODUCTS = _MATMULS | {"Conv", "ConvInteger", "ConvTranspose"}
"""Operators with weights, convolutions and matrix products."""

WITH_BODIES = frozenset({"onnx.If", "onnx.Loop", "onnx.Scan"})
"""Steps with subgraphs."""

RECURRENT = frozenset({"LSTM", "GRU", "RNN", "AUGRU", "DynamicQuantizeLSTM"})
"""Operators with two matrix products in each step of a sequence."""


@dataclass(frozen=True)
class Work:
    """What one step does in a run.

    Attributes:
        macs: multiply-adds of convolutions, matrix products and recurrences, those in the bodies of
            If, Loop and Scan among them; 0 for what is computed element by element.
        int8: it multiplies 8-bit codes.
        in_f32: how many products in f32 take the place of that of codes, on a CPU whose pairs of products of codes may
            saturate; 0 where codes are multiplied as such.
        read, written: bytes, weights and what post-ops read included; 0 for a view.
        calls: how many operations are called: 1, or as many as the bodies have nodes, in all trips.
        once: it has a body whose trips nobody knows before it runs, and which counts once.
        within: the steps of its bodies that have plans, each with its plan in front, its work, and how often it runs.
        depthwise: its multiply-adds are those of a convolution whose every output channel reads one input channel.
    """

    macs: int
    int8: bool
    read: int
    written: int
    calls: int = 1
    once: bool = False
    within: tuple[tuple[Plan, Step, Work, int], ...] = ()
    depthwise: bool = False
    in_f32: int = 0

    @property
    def int8_macs(self) -> int:
        """The multiply-adds of 8-bit codes that are multiplied as such."""
        inside = sum(work.int8_macs * times for _, _, work, times in self.within)
        return self.macs if self.int8 and not self.in_f32 else inside

    @property
    def f32_code_macs(self) -> int:
        """The multiply-adds of 8-bit codes that f32 kernels do."""
        inside = sum(work.f32_code_macs * times for _, _, work, times in self.within)
        return self.macs if self.int8 and self.in_f32 else inside

    @property
    def bytes(self) -> int:
        """Read and written."""
        return self.read + self.written


def works_of(plan: Plan, isa: str) -> tuple[Work, ...]:
    """The work of each step on a CPU: `isa` is one of `plan.summation.ISAS`."""
    in_f32 = {} if isa == EXACT_ISA else products_in_f32(plan, isa)
    return tuple(
        work_of(plan, step, in_f32=in_f32.get(index, 0), isa=isa)
        for index, step in enumerate(plan.steps)
    )


def work_of(
    plan: Plan,
    step: Step,
    narrow: frozenset[str] = frozenset(),
    in_f32: int = 0,
    isa: str = EXACT_ISA,
) -> Work:
    """The work of a step.

    Args:
        plan, step: the step, of the plan.
        narrow: values that count one byte an element, whatever their type.
        in_f32: how many products in f32 take the place of that of codes.
        isa: of the CPU that runs its bodies.
    """
    macs = _macs(plan, step)
    if step.primitive in VIEWS:
        return Work(macs, False, 0, 0)
    bodies = None if step.bodies is not None else _bodies(plan, step)

    def size(names: Collection[str]) -> int:
        wide = frozenset(names) if in_f32 else frozenset()
        return sum(bytes_of(plan, name, narrow, wide) for name in names if name)

    picked = size(step.outputs) if operator_of(step) == "Gather" else 0
    read = picked + size(step.inputs[1:]) if picked else size(dict.fromkeys(step.inputs))
    if step.bodies is not None:
        return _work_within(plan, step, read, size(step.outputs), isa)
    if bodies is None:
        int8 = runs_in_int8(plan, step)
        depthwise = _is_depthwise(plan, step)
        return Work(macs, int8, read, size(step.outputs), depthwise=depthwise, in_f32=in_f32)
    calls = max(1, bodies.nodes)
    return Work(bodies.macs, False, read, size(step.outputs), calls, bodies.once)


def _is_depthwise(plan: Plan, step: Step) -> bool:
    weights = plan.find(step.arg("weights") or "") if step.primitive == "convolution" else None
    sizes = () if weights is None else weights.shape or ()
    return len(sizes) > 2 and sizes[1] == 1 and step.params.get("group", 1) == sizes[0] != 1


def _work_within(plan: Plan, step: Step, read: int, written: int, isa: str) -> Work:
    """The work of a step whose bodies are plans."""
    parts = parts_of(plan, step)
    within = tuple(
        (part.plan, inner, work, part.times)
        for part in parts.parts
        for inner, work in zip(part.plan.steps, works_of(part.plan, isa), strict=True)
    )
    macs = sum(work.macs * times for _, _, work, times in within)
    calls = sum(work.calls * times for _, _, work, times in within)
    once = parts.once or any(work.once for _, _, work, _ in within)
    return Work(macs, False, read, written, max(1, calls), once, within)


def macs_inside(plan: Plan) -> int:
    """The multiply-adds of a whole plan."""
    return sum(work_of(plan, step).macs for step in plan.steps)


def _bodies(plan: Plan, step: Step) -> Body | None:
    if step.primitive not in WITH_BODIES:
        return None
    from .bodies import body_of  # imports onnx

    return body_of(plan, step)


def bytes_of(
    plan: Plan,
    value: str,
    narrow: frozenset[str] = frozenset(),
    wide: frozenset[str] = frozenset(),
) -> int:
    """Bytes of a value or constant; one an element for those in `narrow`, at least as many as f32 has in `wide`."""
    type_ = plan.find(value)
    if type_ is None:
        return 0
    width = 1 if value in narrow or type_.dtype is DType.STRING else _width(type_.dtype)
    return elements_of(type_) * (max(width, _width(DType.F32)) if value in wide else width)


def _width(dtype: DType) -> int:
    return 2 if dtype is DType.BF16 else dtype.numpy.itemsize


def elements_of(type_: TensorType) -> int:
    """How many elements a value has, with 1 for each size that is not known."""
    return math.prod(size if isinstance(size, int) else 1 for size in type_.shape or ())


def at_sizes(plan: Plan, sizes: Mapping[str, int]) -> Plan:
    """The plan with all sizes known: symbols as `sizes` has them, and 1 where it has none; formulas
    over them as they come out, but at least 1 unless a size is 0; and what the model computes from
    shapes as a run computes it.
    """
    known = defaultdict(lambda: 1, sizes)
    least = min(1, *sizes.values()) if sizes else 1
    bound = _bound(plan, known)

    def size(dim: Dim) -> int:
        try:
            return max(dims.evaluate(dim, known), least)
        except (KeyError, ZeroDivisionError):  # `?`, or a formula that these sizes do not fit
            return 1

    def sized(name: str, type_: TensorType) -> TensorType:
        stated = bound.get(name, type_.shape)
        shape = None if stated is None else tuple(map(size, stated))
        return TensorType(type_.dtype, shape, type_.quant)

    return replace(plan, values={name: sized(name, type_) for name, type_ in plan.values.items()})


def _bound(plan: Plan, sizes: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
    """The shapes that these sizes of the inputs decide, through Shape, Gather and Reshape as well;
    none where an input's rank is open, or where the sizes do not fit the model, as 1 need not.
    """
    shapes = {name: plan.type(name).shape for name in plan.inputs}
    given = {
        name: tuple(size if isinstance(size, int) else sizes[size] for size in shape)
        for name, shape in shapes.items()
        if shape is not None
    }
    if len(given) < len(shapes):
        return {}
    try:
        return bind_shapes(plan, given)[0]
    except InvalidInput:
        return {}


def are_batches(plan: Plan, symbols: Iterable[str]) -> bool:
    """True where these sizes are first ones of inputs only: a batch, of which 1 is a usual size."""
    shapes = [plan.type(value).shape or () for value in plan.inputs]
    inner = {size for shape in shapes for size in shape[1:]}
    return not inner & set(symbols) and "?" not in symbols


def operator_of(step: Step) -> str:
    """The ONNX operator that a step is, or is built around."""
    return step.primitive.removeprefix("onnx.") if step.op == "Onnx" else step.op


def _macs(plan: Plan, step: Step) -> int:
    row = operator_of(step)
    if row in RECURRENT:
        return _recurrent(plan, step)
    if step.op == "Onnx" and row not in WITH_BODIES:
        return _foreign_macs(plan, step)
    if row not in PRODUCTS or not step.outputs or len(step.args) < 2:
        return 0
    source, weights = (plan.find(value) for _, value in step.args[:2])
    result = plan.find(step.outputs[0])
    if source is None or weights is None or result is None:
        return 0
    if row in _MATMULS:
        inner = (source.shape or (1,))[-1]
        return elements_of(result) * (inner if isinstance(inner, int) else 1)
    first = (weights.shape or (1,))[0]
    window = elements_of(weights) // max(1, first if isinstance(first, int) else 1)
    behind = [op for op in step.attr.post_ops if isinstance(op, DepthwiseConv)]
    strides = math.prod(op.stride**2 for op in behind)  # what lies between is larger by so much
    own = elements_of(source if row == "ConvTranspose" else result) * strides * window
    return own + sum(elements_of(result) * op.kernel**2 for op in behind)


def _foreign_macs(plan: Plan, step: Step) -> int:
    from .bodies import MULTIPLYING, macs_of  # imports onnx

    return macs_of(plan, step) if operator_of(step) in MULTIPLYING else 0


def _recurrent(plan: Plan, step: Step) -> int:
    """Each step of the sequence multiplies the input by W and the state by R, for each sequence of
    the batch: X is [steps, batch, inputs].
    """
    types = [plan.find(value) for _, value in step.args[:3]]
    if len(types) < 3 or any(type_ is None for type_ in types):
        return 0
    data, *weights = (type_ for type_ in types if type_ is not None)
    steps = (size if isinstance(size, int) else 1 for size in (data.shape or ())[:2])
    return math.prod(steps) * sum(map(elements_of, weights))


_LARGE_MAP = 784  # positions from which a depthwise convolution takes factors that are computed
_SHORT_ROWS = 8  # softmaxes of fewer elements between other axes stay on NumPy


def along_the_middle(plan: Plan, step: Step) -> bool:
    """True of a softmax of few elements or a reduction, along an axis between others, that NumPy computes:
    the library has its reference implementation only, and no other primitive is faster.
    """
    sizes = _sizes_read(plan, step)
    if step.primitive == "softmax":
        axis = _softmax_axis(step, sizes)
        return _is_between(sizes, axis) and 0 < sizes[axis] < _SHORT_ROWS
    if step.primitive != "reduction":
        return False
    constant = plan.constants.get(step.arg("axes") or "")
    axes = {int(axis) % len(sizes) for axis in ([] if constant is None else constant.reshape(-1))}
    if not axes or axes == set(range(min(axes), len(sizes))):
        return False
    floats = plan.type(step.args[0][1]).dtype is DType.F32
    in_codes = plan.type(step.outputs[0]).dtype is not DType.F32
    told = in_codes and (step.attr.scales or step.attr.zero_points)
    product = step.op == "ReduceSum" and floats and not (told or step.attr.operands)
    return not product or axes != set(range(min(axes), max(axes) + 1))


def behind_reorders(plan: Plan, step: Step) -> bool:
    """True of a softmax along an axis between others, for which reorders bring that innermost, and back."""
    sizes = _sizes_read(plan, step)
    between = step.primitive == "softmax" and _is_between(sizes, _softmax_axis(step, sizes))
    return between and not along_the_middle(plan, step)


def _sizes_read(plan: Plan, step: Step) -> list[int]:
    """The shape of what a step reads first, 0 for what is not known."""
    type_ = plan.find(step.args[0][1]) if step.args else None
    shape = () if type_ is None else type_.shape or ()
    return [size if isinstance(size, int) else 0 for size in shape]


def _softmax_axis(step: Step, sizes: Sequence[int]) -> int:
    return int(str(step.params.get("axis", -1))) % max(1, len(sizes))


def _is_between(sizes: Sequence[int], axis: int) -> bool:
    """True of an axis with others behind it; channels may be innermost."""
    return axis != 1 and any(size != 1 for size in sizes[axis + 1 :])


def row_of(plan: Plan, step: Step) -> int:
    """How many elements lie side by side over which the smaller operand of a binary either goes on or stays the
    same; 0 where both have the same sizes, where one is a single number, and where a depthwise convolution
    multiplies codes by a factor for each channel. Channels lie innermost in what a convolution makes.
    """
    known = [
        (value, type_) for _, value in step.args[:2] if (type_ := plan.find(value)) is not None
    ]
    if len(known) < 2 or any(not type_.shape for _, type_ in known):
        return 0
    (name, small), (_, large) = sorted(known, key=lambda item: elements_of(item[1]))
    whole, own = large.shape or (), small.shape or ()
    own = (1,) * (len(whole) - len(own)) + own
    if own == whole or elements_of(small) == 1:
        return 0
    sizes = [
        (size if isinstance(size, int) else 1, size == other)
        for size, other in zip(whole, own, strict=True)
    ]
    if len(sizes) > 2 and all(size == 1 for axis, size in enumerate(own) if axis != 1):
        mapped = name in plan.constants or math.prod(size for size, _ in sizes[2:]) >= _LARGE_MAP
        if step.params.get("algorithm") == "mul" and not large.dtype.is_float and mapped:
            return 0
        if len(sizes) > 3 and _is_made_by_convolution(plan, whole):
            sizes.append(sizes.pop(1))
    sizes = [each for each in sizes if each[0] != 1]
    alike = takewhile(lambda each: each[1] == sizes[-1][1], reversed(sizes))
    return math.prod(size for size, _ in alike)


def _is_made_by_convolution(plan: Plan, shape: Sequence[Dim]) -> bool:
    return any(
        step.primitive in ("convolution", "deconvolution")
        and plan.type(step.outputs[0]).shape == shape
        for step in plan.steps
    )


# -- how often the plans in bodies run, at which sizes --------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A body of a step.

    Attributes:
        plan: its plan, all sizes known.
        times: how often it runs in a run of the step.
    """

    plan: Plan
    times: int


@dataclass(frozen=True)
class Parts:
    """The bodies of a step.

    Attributes:
        parts: each body.
        once: it is a loop whose trips nobody knows before it runs.
    """

    parts: tuple[Part, ...] = ()
    once: bool = False


def parts_of(plan: Plan, step: Step) -> Parts:
    """The bodies of a step that has plans for them; none of another one.

    Of the branches of an If the costlier one runs; a loop whose trips nobody knows before it runs takes
    one. A body has the sizes of the first trip.
    """
    if step.bodies is None:
        return Parts()
    plans = [_sized(plan, step, body) for body in step.bodies.plans]
    if step.params.get("op_type") == "If":
        costs = [macs_inside(body) for body in plans]
        chosen = costs.index(max(costs))
        return Parts(tuple(Part(body, int(n == chosen)) for n, body in enumerate(plans)))
    trips = _trips(plan, step, plans[0])
    return Parts((Part(plans[0], 1 if trips is None else trips),), trips is None)


def _sized(plan: Plan, step: Step, body: Plan) -> Plan:
    """The plan of a body at the sizes of what it is given first."""
    sizes: dict[str, int] = {}
    values, constants = dict(body.values), dict(body.constants)
    if step.params.get("op_type") == "Loop":
        constants[body.inputs[1]] = np.array(True)  # or no trip begins
    for name, given in zip(body.inputs, given_to(plan, step, body), strict=False):
        own = body.values[name]
        if given is None or given.shape is None:
            continue
        if own.shape is None:
            values[name] = replace(own, shape=given.shape)
        pairs = zip(own.shape or (), given.shape, strict=False)
        sizes |= {a: b for a, b in pairs if isinstance(a, str) and isinstance(b, int)}
    return at_sizes(replace(body, values=values, constants=constants), sizes)


def _trips(plan: Plan, step: Step, body: Plan) -> int | None:
    """How often a Loop or Scan runs its body; None where data decide."""
    if step.params.get("op_type") == "Scan":
        assert step.bodies is not None
        rows = plan.find(step.args[step.bodies.states][1])
        first = rows.shape[0] if rows is not None and rows.shape else None
        return first if isinstance(first, int) else None
    most, going = (plan.constants.get(step.arg(role) or "") for role in ("x_0", "x_1"))
    if going is not None and not going.any():
        return 0
    if most is None or most.size != 1 or (step.arg("x_1") and going is None) or not _goes_on(body):
        return None
    return max(0, int(most.reshape(-1)[0]))


def _goes_on(body: Plan) -> bool:
    """True of a body that hands on its condition as it is, or as a constant that holds."""
    made = {name: step for step in body.steps for name in step.outputs}
    name = body.outputs[0]
    while name in made and made[name].op in ("Identity", "Cast") and made[name].args:
        name = made.pop(name).args[0][1]
    known = body.constants.get(name)
    return name == body.inputs[1] or (known is not None and bool(known.all()))
