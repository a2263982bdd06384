"""What a quantized model answers on a CPU without VNNI, layer by layer, beside the exact result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler import compile as compile_model
from ..composer.compose import plan_from_graph
from ..errors import InvalidInput
from ..frontend import DEFAULT, Budgets, ModelSource, check_budgets, graph_from_onnx
from ..inference import InferenceSession
from ..ir.cleanup import erase_dead
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Array
from ..ir.types import TensorType
from ..ir.verify import IMPORTED, check
from ..passes import optimize
from ..plan.open_sizes import NO_SIZES, sizes_at
from ..plan.saturation import StepSums, sums_of_plan
from ..plan.seal import is_plan
from ..plan.types import Plan
from ..report.notation import layer_names
from ..runtime.numerics import PROFILES, check_isa
from ..runtime.numpy_runtime import run_step
from .data import Samples, drawn
from .measures import Measure, grid_of

EXACT: Any = "vnni"
"""The instruction set whose sums are exact."""

_SANE = 1e6  # what data of a model spans at most; a quantizer of more was not made for data


@dataclass(frozen=True)
class Subject:
    """The model that is looked at.

    Attributes:
        source: where it came from.
        graph: as imported: nothing fused.
        plan: compiled.
        isa: the instruction set.
        sums: how each int8 step sums there.
        reference: what its outputs are held against besides: the f32 model's plan; None: nothing.
        told: what that is.
    """

    source: ModelSource
    graph: Graph
    plan: Plan
    isa: str
    sums: Sequence[StepSums]
    reference: Plan | None
    told: str

    @property
    def at_risk(self) -> list[StepSums]:
        """The steps that may saturate, or lose the last bit of weights."""
        return [sums for sums in self.sums if sums.saturates]

    @property
    def rounded(self) -> list[StepSums]:
        """The steps whose sums may pass 2^24, where some code rounds them to f32."""
        return [sums for sums in self.sums if sums.rounded]


@dataclass
class Effect:
    """What a step gives there.

    Attributes:
        sums: how it sums.
        layer: its name in the model.
        entries, differ: numbers that it stores, and those of them that are others, fed with exact
            inputs.
        alone: how far these are from the exact ones.
        total: the same with what all steps in front give there.
    """

    sums: StepSums
    layer: str
    entries: int = 0
    differ: int = 0
    alone: Measure = field(default_factory=Measure)
    total: Measure = field(default_factory=Measure)

    @property
    def share(self) -> float:
        """Of its numbers, those that differ."""
        return self.differ / self.entries if self.entries else 0.0


@dataclass
class Answer:
    """An output on that CPU.

    Attributes:
        there: against the exact result.
        entries, differ: its numbers, and those that differ.
        rows, changed: rows of scores, and those whose largest one is another; 0 of an output that
            holds none.
        exact_to_f32, there_to_f32: both results against f32's; None where there is no f32 model.
    """

    there: Measure = field(default_factory=Measure)
    entries: int = 0
    differ: int = 0
    rows: int = 0
    changed: int = 0
    exact_to_f32: Measure | None = None
    there_to_f32: Measure | None = None

    def add(self, exact: Array, there: Array, f32: Array | None, type_: TensorType) -> None:
        """Takes one sample more."""
        self.entries += exact.size
        self.differ += _count_of_different(exact, there)
        self.there.add(*(real(array, type_) for array in (exact, there)))
        ours, theirs = scores(exact), scores(there)
        if ours is not None and theirs is not None:
            self.rows += len(ours)
            self.changed += int(np.count_nonzero(ours.argmax(axis=1) != theirs.argmax(axis=1)))
        if f32 is not None:
            self.exact_to_f32 = self.exact_to_f32 or Measure()
            self.there_to_f32 = self.there_to_f32 or Measure()
            self.exact_to_f32.add(f32, real(exact, type_))
            self.there_to_f32.add(f32, real(there, type_))


@dataclass(frozen=True)
class Simulation:
    """What came out.

    Attributes:
        subject: of what.
        samples: on what.
        effects: of each step that is not proven exact, in the model's order.
        outputs: by name.
    """

    subject: Subject
    samples: Samples
    effects: Sequence[Effect]
    outputs: Mapping[str, Answer]

    @property
    def worst(self) -> float:
        """The smallest SQNR of an output to the exact result, in dB."""
        return min(answer.there.sqnr for answer in self.outputs.values())

    @property
    def differs(self) -> bool:
        """True where a number of an output is another one."""
        return any(answer.differ for answer in self.outputs.values())

    @property
    def void(self) -> list[Effect]:
        """The steps whose numbers are not those of that CPU, nor are those of what reads them: oneDNN may
        take an implementation for them that is not emulated.
        """
        return [effect for effect in self.effects if not effect.sums.emulated]

    @property
    def differing(self) -> list[Effect]:
        """The steps that give other numbers, the worst first."""
        return sorted((e for e in self.effects if e.differ), key=lambda e: e.alone.sqnr)


def scores(array: Array) -> Array | None:
    """An output as rows of scores, [rows, classes]; None of one that does not look like that: one
    dimension of 2 or more classes behind the batch, others of size 1.
    """
    if array.ndim < 2 or array.dtype.kind not in "fiu" or not array.size:
        return None
    flat = array.reshape(len(array), -1)
    return flat if max(array.shape[1:]) == flat.shape[1] >= 2 else None


def real(array: Array, type_: TensorType) -> npt.NDArray[Any]:
    """The numbers that an array stands for, up to a factor: codes less their zero point."""
    if array.dtype.kind not in "iu" or type_.quant is None:
        return array.astype(np.float64) if array.dtype.kind in "iub" else array
    return array - type_.quant.shaped(array.ndim)[1].astype(np.float64)


def _count_of_different(one: Array, other: Array) -> int:
    same = one == other
    if one.dtype.kind == "f":
        same |= np.isnan(one) & np.isnan(other)
    return int(one.size - np.count_nonzero(same))


# -- the model -------------------------------------------------------------------------------------


def subject_of(
    source: ModelSource, isa: str, f32: ModelSource | None = None, budgets: Budgets = DEFAULT
) -> Subject:
    """Reads a model, and the f32 model that it is held against.

    Raises:
        FqfuseError: a model is wrong, or a plan; or there is no such instruction set.
    """
    check_isa(isa, "numpy", needed=True)
    check_budgets(budgets)
    for model in (source, f32):
        if isinstance(model, (str, PathLike, bytes)) and is_plan(model):
            raise InvalidInput(
                "this is a plan, whose quantizers are gone",
                where="bytes" if isinstance(model, bytes) else str(model),
                hint="name the model that it was compiled from",
            )
    graph = graph_from_onnx(source, budgets=budgets)
    check(graph, IMPORTED)
    plan = compile_model(source, budgets=budgets)
    told, reference = "the model without rounding", None
    if f32 is None:
        reference = _without_rounding(source, budgets)
    else:
        told, reference = "the f32 model", _alike(plan, compile_model(f32, budgets=budgets))
    return Subject(source, graph, plan, isa, sums_of_plan(plan, isa), reference, told)


def _alike(plan: Plan, reference: Plan) -> Plan:
    """The reference, if both can be fed alike."""
    if set(plan.inputs) != set(reference.inputs) or not set(plan.outputs) & set(reference.outputs):
        raise InvalidInput(
            f"the models have different inputs, or no output in common: {', '.join(plan.inputs)} and {', '.join(reference.inputs)}",
            where=f"{plan.name} and {reference.name}",
            hint="give the f32 model that this one was quantized from",
        )
    return reference


def _without_rounding(source: ModelSource, budgets: Budgets) -> Plan | None:
    """The model with numbers where it computes codes: each cut to the range of its quantizer, which
    may stand for a Relu, and not rounded; constant weights as they are. None where nothing is left
    out.
    """
    graph = graph_from_onnx(source, budgets=budgets)
    names, done = graph.outputs, 0
    for node in graph.nodes():
        coder = node if node.op == "FakeQuantize" else None
        if node.op == "Dequantize":
            coder = graph.producer(node.input, "Quantize")
        number = None if coder is None else _cut(graph, coder)
        if number is not None and graph.type(number) == graph.type(node.output):
            graph.replace_uses(node.output, number)
            done += 1
    if not done or len(set(graph.outputs)) < len(names):
        return None
    erase_dead(graph)
    for name, number in zip(names, graph.outputs, strict=True):
        if name != number:
            graph.rename_value(number, name)
    return plan_from_graph(optimize(graph))


def _cut(graph: Graph, coder: Node) -> str | None:
    """What a quantizer reads, cut to its range: a new value; None where the range is no single one."""
    if graph.constant(coder.input) is not None:
        return coder.input
    grid = grid_of(graph, coder, len(graph.type(coder.input).shape or ()))
    if grid is None or grid.low.size != 1 or grid.high.size != 1:
        return None
    ends = [
        graph.add_constant(f"{coder.name}.{name}", np.asarray(end.reshape(()), np.float32))
        for name, end in (("low", grid.low), ("high", grid.high))
    ]
    return graph.add("Clip", (coder.input, *ends), origin=coder.origin).output


def samples_for(subject: Subject, sizes: Mapping[str, int] = NO_SIZES) -> Samples:
    """One sample of random data, within the ranges of the inputs' quantizers.

    Raises:
        InvalidInput: as `data.drawn`.
    """
    graph, ranges = subject.graph, {}
    for name in graph.inputs:
        rank = len(graph.type(name).shape or ())
        coders = [n for n in graph.consumers(name) if n.op in ("Quantize", "FakeQuantize")]
        grids = [grid for n in coders if (grid := grid_of(graph, n, rank)) is not None]
        if grids:
            low, high = float(grids[0].low.min()), float(grids[0].high.max())
            if high - low < _SANE:
                ranges[name] = low, high
    return drawn(graph, 1, sizes, ranges, guessed=sizes_at(subject.plan, sizes)[1])


def layer_of(plan: Plan, sums: StepSums) -> str:
    """A step by its first node that is no quantizer."""
    return next(iter(layer_names(plan, sums.step)), sums.step.name)


# -- runs ------------------------------------------------------------------------------------------


def simulated(
    subject: Subject, samples: Samples, advance: Callable[[], None] = lambda: None
) -> Simulation:
    """Runs a model on samples, exactly and as on that CPU.

    Args:
        subject: of `subject_of`.
        samples: of `samples_for`, or `data.given`.
        advance: called for each sample as many times as there are steps at risk.

    Raises:
        FqfuseError: the samples do not fit the model.
    """
    effects = [Effect(sums, layer_of(subject.plan, sums)) for sums in subject.at_risk]
    found = {name: Answer() for name in subject.plan.outputs}
    isa: Any = subject.isa
    runs = [InferenceSession(subject.plan, "numpy", isa=each) for each in (EXACT, isa)]
    reference = None if subject.reference is None else InferenceSession(subject.reference)
    for feeds in samples.feeds:
        exact, there = (run.run_steps(feeds) for run in runs)
        known = {**subject.plan.constants, **_arrays(feeds), **exact}
        for effect in effects:
            _measure(subject, effect, known, there)
            advance()
        f32 = {} if reference is None else outputs_of(reference, feeds)
        for name, answer in found.items():
            ours, theirs = known[name], there.get(name, known[name])
            answer.add(ours, theirs, f32.get(name), subject.plan.type(name))
    return Simulation(subject, samples, effects, found)


def outputs_of(session: InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """What a session gives, by name."""
    return dict(zip(session.plan.outputs, session.run_carried(None, feeds), strict=True))


def _arrays(feeds: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
    return {name: np.asarray(array) for name, array in feeds.items()}


def _measure(
    subject: Subject, effect: Effect, exact: Mapping[str, Array], there: Mapping[str, Array]
) -> None:
    """What a step gives on exact inputs, and in the run there."""
    step, plan = effect.sums.step, subject.plan
    inputs = {name: exact[name] for name in step.inputs if name in exact}
    alone = run_step(plan, step, inputs, profile=PROFILES[subject.isa])[0]
    wanted, type_ = exact[step.output], plan.type(step.output)
    effect.entries += wanted.size
    effect.differ += _count_of_different(wanted, alone)
    effect.alone.add(real(wanted, type_), real(alone, type_))
    effect.total.add(real(wanted, type_), real(there[step.output], type_))
