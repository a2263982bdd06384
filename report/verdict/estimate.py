"""The time that a plan takes on a machine: a roofline, never a measurement.

A step takes as long as its multiply-adds, or its bytes in a shared cache, whichever is longer, and a
call. The rates are what kernels reach in whole networks (`machine.py`). Without VNNI codes that may
saturate are multiplied in f32, with four bytes an element. What runs on NumPy has one core, and takes
what its operator's row says for each element; If, Loop and Scan a call for each node of their bodies,
trip by trip, or, where these are plans, what their steps take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ...ir.ops import OPS
from ...ir.ops.foreign import SLOW_WITHOUT_ROW
from ...ir.ops.spec import Effort
from ...ir.types import DType
from ...plan.attributes import Binary, Eltwise, Sum
from ...plan.shapes import settled_steps
from ...plan.types import Plan, Step
from ...plan.verify_shapes import OWN_PRIMITIVES
from .machine import Machine
from .work import (
    MOVES,
    VIEWS,
    Work,
    along_the_middle,
    behind_reorders,
    elements_of,
    operator_of,
    row_of,
    work_of,
    works_of,
)

_NUMPY_SHARE = 0.25
"""Of a core's f32 peak, for products on NumPy: small ones, one after the other."""

_REORDERS = 2
"""Of a softmax that runs behind them: one before it, one after."""

_CYCLES: Mapping[Effort, float] = MappingProxyType(
    {
        Effort.NONE: 0.0,
        Effort.PASSES: 2.0,
        Effort.LOOPS: 10.0,
        Effort.FUNCTIONS: 80.0,
        Effort.SERIES: 200.0,
        Effort.PYTHON: 20_000.0,
    }
)
"""Of a core, for an element on NumPy. Measured with NumPy 2 on one core of Zen 4, tensors of 100,000 to
200,000 elements in a shared cache: most rows 0.25 to 1.4 ns an element, loops 1.5 to 7, Softplus and
Mish 21, Erf, Gelu and TopK 62; by ONNX's evaluator a Resize of codes 35 to 64, Col2Im and
NonMaxSuppression 2,500 to 9,000, GridSample 80,000. `tests/support/numpy_steps.py` measures each row.
"""

_BY_EVALUATOR = 4
"""Times as long as another step's that the call of ONNX's evaluator takes: 60 to 90 µs."""

_TURNED = 2
"""Times as long as bytes that are moved straight on take those that a reorder brings into another order."""

_ROUNDING = 4
"""Multiply-adds of f32 that take as long as rounding an element in post-ops. Measured on one core of
Zen 4 with AVX-512: 9.5 µs for rounding a product of [1, 128, 384] and its sum with the skip.
"""


_CODED = 5
"""Bytes of an element that a quantizer reads in f32 and writes as a code."""

_DEPTHWISE_CODES = 1.25
"""Times as long as in f32 that depthwise multiply-adds of codes take: the instructions for codes add
neighbours, which are other channels there. Measured on one core of Zen 4 with AVX-512 VNNI, seven
convolutions of 3x3 to 7x7, 48 to 256 channels: 0.8 to 1.3 for u8, 1.1 to 2.0 for s8.
"""

_BLOCK, _VECTOR = 128, 16
"""Floats of a row that a binary with an operand of other sizes computes at once, and of a vector: AVX-512."""

_REST = 19
"""Cycles that each scale, shift or addition in post-ops takes there for a vector that is in no whole block. Measured
with oneDNN 3.2 on one core of Zen 4, 50,000 elements by an operand for each column: 5 ns a vector in rows of 8 to 124
and in the last 16 to 112 columns of 144 to 240, 0.6 ns in rows of 128, 256 and 1,024; rounding and clip take none. Four
of them made the multiplication of an SE-ResNet [1, 64, 28, 28] take 90 µs in place of 14.
"""


@dataclass(frozen=True)
class Remedied:
    """A plan as it would be after a change: what differs.

    Attributes:
        narrow: values that would have 8 bits.
        int8: indices of steps that would multiply codes.
        gone: indices of steps that would not be there.
        primitives: indices of steps on NumPy that would be primitives, or whose bodies would
            multiply codes.
        rounding: indices of additions that would round what they add, each as often as it would.
        coded: indices of steps behind which a quantizer would be a step of its own.
        fitting: indices of steps whose products of codes would fit, and be multiplied as such on every CPU.
    """

    narrow: frozenset[str] = frozenset()
    int8: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()
    primitives: frozenset[int] = frozenset()
    rounding: tuple[int, ...] = ()
    coded: tuple[int, ...] = ()
    fitting: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Estimate:
    """Of a whole run: milliseconds and bytes that steps read and write."""

    ms: float
    bytes: int


_AS_IT_IS = Remedied()
_NO_REORDER = frozenset({"onnx.Pad"})
"""Moves that no primitive makes."""
_HAS_KERNEL = frozenset({"DynamicRange", "Gather", "Lookup"})


def on_numpy(step: Step) -> bool:
    """True for a step that no primitive computes or copies."""
    foreign = step.primitive in OWN_PRIMITIVES or (
        step.primitive.startswith("onnx.") and step.primitive not in MOVES - _NO_REORDER
    )
    return foreign and operator_of(step) not in _HAS_KERNEL


@dataclass(frozen=True)
class Costs:
    """What each step of a plan costs on a machine, counted once.

    Attributes:
        plan, machine: the plan, its sizes known, and the machine.
        works: the work of each step.
        ms: the milliseconds of each step at best.
        settled: indices of the steps that no run computes.
    """

    plan: Plan
    machine: Machine
    works: tuple[Work, ...]
    ms: tuple[float, ...]
    settled: frozenset[int]

    @property
    def estimate(self) -> Estimate:
        """Of a whole run."""
        return Estimate(sum(self.ms), sum(work.bytes for work in self.works))

    def saved(self, change: Remedied, touched: Iterable[int]) -> Estimate:
        """What a change saves; it may be less than nothing.

        Args:
            change: the change.
            touched: all steps that it changes, readers and writers of narrower values among them.
        """
        ms, count = 0.0, 0
        for index in set(touched) - self.settled:
            work = self._changed(index, change)
            ms += self.ms[index] - _ms(
                self.plan, self.plan.steps[index], work, self.machine, index, change
            )
            count += self.works[index].bytes - work.bytes
        added = sum(_elements(self.plan, index) for index in change.rounding)
        ms -= self.machine.ms_of(added * _ROUNDING, int8=False)
        coded = sum(_elements(self.plan, index) for index in change.coded) * _CODED
        ms -= coded / self.machine.bytes_per_ms() + len(change.coded) * self.machine.call
        return Estimate(ms, count)

    def _changed(self, index: int, change: Remedied) -> Work:
        """The work of a step after the change."""
        if index in change.gone:
            return Work(0, False, 0, 0)
        in_f32 = 0 if index in change.fitting else self.works[index].in_f32
        step, isa = self.plan.steps[index], self.machine.isa
        found = work_of(self.plan, step, change.narrow, in_f32, isa)
        return replace(found, int8=found.int8 or index in change.int8)

    def least_ms(self, index: int) -> float:
        """Milliseconds of a step's work at the peak rates, whatever runs it; a call costs nothing."""
        view = self.plan.steps[index].primitive in VIEWS
        return 0.0 if view else _least(self.works[index], self.machine)


def _elements(plan: Plan, index: int) -> int:
    type_ = plan.find(plan.steps[index].outputs[0])
    return 0 if type_ is None else elements_of(type_)


def costs_of(plan: Plan, machine: Machine, works: Sequence[Work] | None = None) -> Costs:
    """The work and time of all steps; `works`: of each, where it is counted already for such a CPU."""
    found = works_of(plan, machine.isa) if works is None else tuple(works)
    settled = settled_steps(plan)
    ms = (
        0.0 if index in settled else _ms(plan, step, work, machine)
        for index, (step, work) in enumerate(zip(plan.steps, found, strict=True))
    )
    return Costs(plan, machine, found, tuple(ms), settled)


def _ms(
    plan: Plan,
    step: Step,
    work: Work,
    machine: Machine,
    index: int = -1,
    change: Remedied = _AS_IT_IS,
) -> float:
    """Milliseconds of a step with that work at best."""
    if index in change.gone or step.primitive in VIEWS:
        return 0.0
    if work.within:
        int8 = index in change.primitives  # of products
        works = (
            replace(own, int8=own.int8 or (int8 and own.macs > 0)) for _, _, own, _ in work.within
        )
        return sum(
            _ms(part, inner, own, machine) * times
            for (part, inner, _, times), own in zip(work.within, works, strict=True)
        )
    foreign = on_numpy(step) or along_the_middle(plan, step)
    if foreign and index not in change.primitives:
        return _on_numpy_ms(plan, step, work, machine)
    reorders = _REORDERS if behind_reorders(plan, step) else 0
    moved = reorders * _TURNED * work.bytes / machine.bytes_per_ms()
    rest = _rest_ms(plan, step, machine, change)
    return _least(work, machine) + rest + moved + machine.call * (work.calls + reorders)


def _rest_ms(plan: Plan, step: Step, machine: Machine, change: Remedied) -> float:
    """Milliseconds that post-ops of a binary take for what no whole block of its rows holds."""
    row = row_of(plan, step) if step.primitive == "binary" else 0
    if row % _BLOCK == 0:
        return 0.0
    vectors = elements_of(plan.type(step.outputs[0])) // row * -(-(row % _BLOCK) // _VECTOR)
    cycles = vectors * _scales_behind(plan, step, change) * _REST
    return cycles / (machine.clock * 1e6 * machine.cores)


def _scales_behind(plan: Plan, step: Step, change: Remedied) -> int:
    """Scales, shifts and additions in the post-ops. What would store codes needs a scale for them; where it adds a
    skip, a scale and shift before and behind the rounding of its own term, and the addition, too.
    """
    ops = step.attr.post_ops
    count = sum(
        isinstance(op, Binary) or (isinstance(op, Eltwise) and op.algorithm == "linear")
        for op in ops
    )
    (result, *_) = step.outputs
    if result not in change.narrow or plan.type(result).dtype is not DType.F32:
        return count
    skip = any(
        isinstance(op, Sum) or (isinstance(op, Binary) and op.operand in plan.values) for op in ops
    )
    return max(count, 4 if skip else 1)


def _on_numpy_ms(plan: Plan, step: Step, work: Work, machine: Machine) -> float:
    """Milliseconds of a step on NumPy, which has one core: its products, or what its operator does to each
    element of the largest tensor, whichever is longer, and the calls.
    """
    macs = work.macs / (machine.macs_per_ms(int8=False, cores=1) * _NUMPY_SHARE)
    values = [value for value in (*step.inputs, *step.outputs) if value in plan.values]
    count = max((elements_of(plan.values[value]) for value in values), default=0)
    computed = count * _CYCLES[_effort_of(step)] / (machine.clock * 1e6)
    calls = work.calls * (_BY_EVALUATOR if step.op == "Onnx" and work.calls == 1 else 1)
    return max(macs, computed) + machine.numpy_call * calls


def _effort_of(step: Step) -> Effort:
    spec = OPS.get(step.op)  # a plan that was written by hand may name any
    known = Effort.LOOPS if spec is None else spec.effort
    return SLOW_WITHOUT_ROW.get(operator_of(step), known) if step.op == "Onnx" else known


def _least(work: Work, machine: Machine) -> float:
    """The steps of a sequence come one after the other, but each one's products are for all cores."""
    codes = work.int8 and not work.in_f32
    macs = machine.ms_of(work.macs, int8=codes, depthwise=work.depthwise)
    macs *= _DEPTHWISE_CODES if codes and work.depthwise else max(1, work.in_f32)
    return max(macs, work.bytes / machine.bytes_per_ms())
