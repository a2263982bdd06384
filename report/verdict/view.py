"""A plan as a graph: who writes a value, who reads it, and what lies behind steps that only move
data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from ...ir.decision import WRITTEN_OUT, Half, Outcome
from ...ir.ops import OPS
from ...ir.types import TensorType
from ...plan.arguments import SOURCE_AT_RUN_TIME, in_order
from ...plan.attributes import OPERANDS, Binary, Eltwise, Sum
from ...plan.targets import TARGETS
from ...plan.types import Plan, Step, runs_in_int8
from ...plan.verify_shapes import OWN_PRIMITIVES
from .work import (
    EXACT_ISA,
    MOVES,
    PRODUCTS,
    RECURRENT,
    SHAPES,
    VIEWS,
    WITH_BODIES,
    Work,
    elements_of,
    operator_of,
    works_of,
)

Item = TypeVar("Item")

ADDS = frozenset({"add", "sub"})
_TO_CODES = (" in int8", "split_fake_quantize")
"""How the rules end that make codes of floats, or multiply codes."""
ELEMENTWISE = frozenset({"binary", "eltwise", "prelu", "batch_normalization"})


@dataclass(frozen=True)
class Reading:
    """A step reads a value: as an argument (`src`, `weights` ...), or in a post-op (`sum`,
    `binary add` ...).
    """

    step: int
    role: str


class View:
    """What can be asked of a plan.

    Args:
        plan: the plan.
        isa: of the CPU, for the work of steps: a name of `plan.summation.ISAS`.
        decoded_outside: inputs of the plan of a body that are decoded codes of the plan around it.
    """

    def __init__(
        self, plan: Plan, isa: str = EXACT_ISA, decoded_outside: frozenset[str] = frozenset()
    ) -> None:
        self.plan, self.isa, self.decoded_outside = plan, isa, decoded_outside
        self.steps = plan.steps
        self.producer = {
            value: index for index, step in enumerate(plan.steps) for value in step.outputs if value
        }
        self._is_float: dict[str, bool] = {}
        self._refused: dict[str, list[str]] = {}
        for decision in plan.decision_records:
            if decision.outcome is Outcome.REFUSED and decision.rule.endswith(_TO_CODES):
                self._refused.setdefault(decision.subject, []).append(decision.reason)
        self.readers: dict[str, list[Reading]] = {}
        for index, step in enumerate(plan.steps):
            for value, role in _read(step):
                self.readers.setdefault(value, []).append(Reading(index, role))
        self._behind, self._in_front = self._look_ahead(), self._look_back()

    @cached_property
    def _floats_written(self) -> list[list[str]]:
        return [
            [value for value in step.outputs if value and self.is_float(value)]
            for step in self.steps
        ]

    @cached_property
    def written_out(self) -> Mapping[Half, frozenset[int]]:
        """Steps that make and decode codes of quantizers which the model writes out as arithmetic."""
        names = {n for n, found in self.plan.quantizers.items() if found.form == WRITTEN_OUT}
        fates = [fate for fate in self.plan.fate_records if fate.quantizer in names]
        return {
            half: frozenset(
                fate.step for fate in fates if fate.half is half and fate.step is not None
            )
            for half in Half
        }

    @cached_property
    def _in_int8(self) -> list[bool]:
        return [runs_in_int8(self.plan, step) for step in self.steps]

    @cached_property
    def works(self) -> tuple[Work, ...]:
        """The work of each step, counted once."""
        return works_of(self.plan, self.isa)

    def multiplies_inside(self, index: int) -> bool:
        """True of a step with bodies (If, Loop, Scan) that hold products."""
        return self.steps[index].primitive in WITH_BODIES and self.works[index].macs > 0

    def is_quantized_inside(self, index: int) -> bool:
        """True of a step with plans for its bodies that hold quantizers, or compute on codes."""
        bodies = self.steps[index].bodies
        plans = () if bodies is None else bodies.plans
        parts = [part for plan in plans for part in (plan, *(body for _, body in plan.within))]
        return any(
            part.quantizers or any(runs_in_int8(part, step) for step in part.steps)
            for part in parts
        )

    def type(self, value: str) -> TensorType | None:
        """The type of a value, or None where the plan does not say it."""
        return self.plan.find(value)

    def is_float(self, value: str) -> bool:
        """True of a value in f32, or another floating-point type."""
        known = self._is_float.get(value)
        if known is None:
            type_ = self.type(value)
            known = self._is_float[value] = type_ is not None and type_.dtype.is_float
        return known

    def is_code(self, value: str) -> bool:
        """True of a value of 8-bit codes."""
        type_ = self.type(value)
        return type_ is not None and type_.dtype.is_code

    def is_quantized(self, value: str) -> bool:
        """True of codes of any width."""
        type_ = self.type(value)
        return type_ is not None and (type_.dtype.is_code or type_.quant is not None)

    def is_constant(self, value: str) -> bool:
        """True of a constant."""
        return value in self.plan.constants

    def floats_written(self, index: int) -> list[str]:
        """The floating-point values that a step writes."""
        return self._floats_written[index]

    def floats_read(self, index: int) -> list[str]:
        """The floating-point values, not constants, that a step reads as arguments."""
        return [
            value
            for role, value in self.steps[index].args
            if role not in SOURCE_AT_RUN_TIME
            and self.is_float(value)
            and not self.is_constant(value)
        ]

    def is_product(self, index: int) -> bool:
        """True of a convolution or matrix product."""
        return operator_of(self.steps[index]) in PRODUCTS

    def is_f32_recurrence(self, index: int) -> bool:
        """True of a recurrent operator that multiplies floating-point numbers."""
        return is_recurrent(self, index) and not self.in_int8(index)

    def in_int8(self, index: int) -> bool:
        """True where a step computes on 8-bit codes."""
        return self._in_int8[index]

    def decoded_for(self, index: int, body: Plan) -> frozenset[str]:
        """The inputs of a body of a step to which it hands what a quantizer of this plan has decoded."""
        step = self.steps[index]
        decoding = {
            fate.step
            for fate in self.plan.fate_records
            if fate.half is Half.DEQUANTIZE and fate.consumer in step.origin
        }
        given = in_order(OPS[step.op], step.args) or ()
        handed = given[1:] if step.primitive == "onnx.If" else given  # but for the condition
        return frozenset(
            own
            for value, own in zip(handed, body.inputs, strict=False)
            if not decoding.isdisjoint(self.in_front(value))
        )

    def refusals(self, index: int) -> list[str]:
        """Why the nodes of a step do not multiply codes, or make none; empty where they do."""
        names = self.steps[index].origin
        return [reason for name in names for reason in self._refused.get(name, ())]

    def subjects_of(self, rule: str) -> set[str]:
        """The nodes on which a rule fired."""
        return {
            decision.subject
            for decision in self.plan.decision_records
            if decision.rule == rule and decision.outcome is Outcome.FIRED
        }

    def in_int8_source(self, index: int) -> bool:
        """True where the first argument of a step is codes."""
        step = self.steps[index]
        return bool(step.args) and self.is_code(step.args[0][1])

    def is_foreign(self, index: int) -> bool:
        """True of a step that no primitive of oneDNN computes."""
        primitive = self.steps[index].primitive
        return primitive.startswith("onnx.") or primitive in OWN_PRIMITIVES

    def is_move(self, index: int) -> bool:
        """True of a step that only moves data."""
        step = self.steps[index]
        picks = operator_of(step) == "Gather" and bool(step.args)
        return step.primitive in MOVES or (picks and not self.is_constant(step.args[0][1]))

    def is_view(self, index: int) -> bool:
        """True of a step that moves no data at all."""
        return self.steps[index].primitive in VIEWS

    def behind(self, value: str) -> tuple[Reading, ...]:
        """Who reads a value, looking through steps that only move it."""
        return self._behind.get(value, ())

    def in_front(self, value: str) -> tuple[int, ...]:
        """The steps that computed a value, looking through steps that only move it."""
        return self._in_front.get(value, ())

    def stays_float(self, value: str) -> bool:
        """True of a value that no quantizer makes codes, because a primitive reads it that takes floats
        only on the plan's target (softmax, layer normalization): what it computes of may be quantized,
        but is decoded in front of it. An eltwise would be a table of codes.
        """
        return any(
            reading.role.startswith("src") and self._takes_floats_only(reading.step)
            for reading in self.behind(value)
        )

    def _takes_floats_only(self, index: int) -> bool:
        primitive, target = self.steps[index].primitive, TARGETS.get(self.plan.target)
        if target is None or primitive == "eltwise" or self.is_foreign(index):
            return False
        return not any(dtype.is_code for dtype in target.capability(primitive).src)

    def _look_ahead(self) -> dict[str, tuple[Reading, ...]]:
        found: dict[str, tuple[Reading, ...]] = {}
        for value in (
            *(v for step in reversed(self.steps) for v in step.outputs),
            *self.plan.inputs,
        ):
            parts = [
                found.get(output, ())
                for reading in self.readers.get(value, ())
                for output in self._moved(reading.step, value)
            ]
            own = tuple(
                item for item in self.readers.get(value, ()) if not self._moved(item.step, value)
            )
            found[value] = _joined(own, *parts)
        return found

    def _look_back(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for index, step in enumerate(self.steps):
            given = [name for _, name in step.args if self._moved(index, name)]
            parts = [found.get(name, ()) for name in given] or [(index,)]
            found.update(dict.fromkeys(step.outputs, _joined(*parts)))
        return found

    def _moved(self, index: int, value: str) -> tuple[str, ...]:
        """What a step that only moves data makes of a value that it reads; nothing where the value is no
        data to it: the source of a Shape, the sizes of a Reshape.
        """
        step = self.steps[index]
        if not self.is_move(index) or not step.outputs:
            return ()
        given, made = self.type(value), self.type(step.outputs[0])
        same = given is None or made is None or given.dtype is made.dtype
        return step.outputs if same and step.primitive not in SHAPES else ()

    def readings(self, index: int) -> list[Reading]:
        """Who reads the floats that a step writes, looking through moves."""
        written = self.floats_written(index)
        return [reading for value in written for reading in self.behind(value)]

    def between(self) -> Iterator[str]:
        """Values that one step writes and another reads; a view of memory does not count anew."""
        for value, index in self.producer.items():
            if value in self.readers and not self.is_view(index):
                yield value


def _joined(*parts: tuple[Item, ...]) -> tuple[Item, ...]:
    """All items, each once; of one part the part itself, so that long chains of moves share it."""
    filled = [part for part in parts if part]
    if len(filled) == 1:
        return filled[0]
    return tuple(dict.fromkeys(item for part in filled for item in part))


def _read(step: Step) -> Iterator[tuple[str, str]]:
    yield from ((value, role) for role, value in step.args)
    for op in step.attr.post_ops:
        for field in OPERANDS[type(op)]:
            value = getattr(op, field)
            if value:
                yield value, f"{op.kind} {getattr(op, 'algorithm', '')}".strip()


# -- questions that several rules of recognition ask -----------------------------------------------


def is_suspect(view: View, index: int) -> bool:
    """True of a step that has to belong to a finding."""
    foreign = view.is_foreign(index)
    in_float = view.is_product(index) and not view.in_int8(index)
    return foreign or in_float or bool(view.floats_written(index))


def feeders_of(view: View, targets: frozenset[int] | set[int]) -> set[int]:
    """Steps that write floats because a target reads them; moves and targets apart."""
    return {
        index
        for index in range(len(view.steps))
        if index not in targets
        and not view.is_move(index)
        and any(reading.step in targets for reading in view.readings(index))
    }


def steps_where(view: View, holds: Callable[[int], bool]) -> set[int]:
    """The steps of which something holds, by their index."""
    return {index for index in range(len(view.steps)) if holds(index)}


def float_products(view: View) -> set[int]:
    """Products in f32."""
    return steps_where(view, lambda index: view.is_product(index) and not view.in_int8(index))


def is_recurrent(view: View, index: int) -> bool:
    """True of a recurrent operator."""
    return operator_of(view.steps[index]) in RECURRENT


def multiplies(view: View, index: int) -> bool:
    """True of a convolution, matrix product or recurrent operator."""
    return view.is_product(index) or is_recurrent(view, index)


def on_integers(view: View, index: int) -> bool:
    """True of an operator on integers that are no codes, of any width, and none of which looks up floats."""
    step = view.steps[index]
    given = [value for _, value in step.args if not view.is_constant(value)]
    results = [value for value in step.outputs if value]
    if not view.is_foreign(index) or any(map(view.is_quantized, results)):
        return False
    if operator_of(step) == "Gather" and any(map(view.is_float, results)):
        return False
    values = given or results
    return not any(view.is_float(value) or view.is_quantized(value) for value in values)


def converts(view: View, index: int) -> bool:
    """True of an elementwise step from f32 to codes: nothing but a quantizer, and what scales."""
    step = view.steps[index]
    return (
        step.primitive in {"reorder", "binary", "eltwise"}
        and any(map(view.is_code, step.outputs))
        and bool(view.floats_read(index))
        and not any(
            isinstance(op, Eltwise) and op.algorithm not in {"linear", "round", "clip", "clip_v2"}
            for op in step.attr.post_ops
        )
        and str(step.params.get("algorithm", "linear")) in {"linear", "mul", "add"}
    )


def skips_of(view: View, step: Step) -> list[str]:
    """The f32 values that a step adds to what it computes, or to each other."""
    size = size_of(view, step.outputs[0]) if step.outputs else 0
    behind = [
        op.operand
        for op in step.attr.post_ops
        if isinstance(op, Sum) or (isinstance(op, Binary) and op.algorithm in ADDS)
    ]
    algorithm = str(step.params.get("algorithm", step.op)).lower()
    added = [value for _, value in step.args] if step.primitive == "binary" else []
    if algorithm not in ADDS or not all(map(view.is_float, added)):
        added = []
    values = [
        value
        for value in (*behind, *added)
        if view.is_float(value) and not view.is_constant(value) and size_of(view, value) == size
    ]
    return values if behind or len(values) > 1 else []


def additions(view: View, value: str) -> set[int]:
    """The steps that add a value to another tensor of its size."""
    maker = view.producer.get(value)
    return {
        reading.step
        for reading in view.behind(value)
        if any(maker in view.in_front(skip) for skip in skips_of(view, view.steps[reading.step]))
    }


def size_of(view: View, value: str) -> int:
    """Elements of a value; 0 where its type is not known."""
    type_ = view.type(value)
    return 0 if type_ is None else elements_of(type_)
