"""What a pass is, what it promises, and how a pipeline of passes is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..ir.decision import Decision, DequantizeFate, Fate, Half, Outcome, QuantizeFate
from ..ir.graph import Graph
from ..ir.node import Node, subject
from ..ir.rule import Refusal
from ..ir.types import Quantization


@dataclass(frozen=True)
class Contract:
    """What a pass or rule promises about the numbers.

    Attributes:
        real: `identity`: equal in real numbers; `approximation`: not even that (opt-in).
        float: `bitwise`: the same bits, but for the sign of a zero; `ties`: integer codes, inner
            ones too, differ by at most 1, and only where the real result lies within f32 rounding
            error of a tie, and floats computed from codes differ by what such a code makes of them,
            and else by rounding, in units in the last place of the largest code times its scale;
            `ulp`: float results differ by at most `ulps` units in the last place of the largest
            intermediate.
        ulps: the bound of `ulp`.
    """

    real: Literal["identity", "approximation"]
    float: Literal["bitwise", "ties", "ulp"]
    ulps: int = 0


@dataclass(frozen=True)
class Pass:
    """A rewrite of graphs; running it twice changes nothing more.

    Attributes:
        name: what it is called in decisions and documents.
        contract: what it promises about the numbers.
        rewrite: edits a graph in place, and leaves a Decision for every place where its anchor
            matched; its docstring describes the pass.
    """

    name: str
    contract: Contract
    rewrite: Callable[..., object]

    def run(self, graph: Graph) -> None:
        """Rewrites the graph."""
        self.rewrite(graph)


Observer = Callable[[Pass, Graph], None]
"""Called after each pass: verifiers, timers, printers."""


def run_pipeline(graph: Graph, passes: Iterable[Pass], observers: Sequence[Observer] = ()) -> Graph:
    """Runs the passes in order on `graph` itself and returns it; each observer sees the graph after
    each pass.
    """
    for step in passes:
        step.run(graph)
        for observe in observers:
            observe(step, graph)
    return graph


Verdict = str | Refusal | None
"""What a pass says of a place: what it did there, why it did nothing, or nothing at all where its
anchor does not match.
"""


def decide(graph: Graph, rule: str, node: Node, verdict: Verdict) -> None:
    """Records what a rule did at a node, or which predicate failed there."""
    if isinstance(verdict, Refusal):
        graph.decide(verdict.at(rule, subject(node)))
    elif verdict is not None:
        graph.decide(Decision(rule, subject(node), Outcome.FIRED, verdict))


@dataclass(frozen=True)
class NodePass(Pass):
    """A pass that looks at each node of some ops, in topological order, and decides there.

    Attributes:
        rewrite: rewrites the graph at a node, or leaves it as it is.
        ops: the ops; none: all there are.
    """

    rewrite: Callable[[Graph, Node], Verdict]
    ops: tuple[str, ...] = ()

    def run(self, graph: Graph) -> None:
        """Shows every node of the ops to `rewrite`, and records the verdict."""
        for node in graph.each(*self.ops):
            decide(graph, self.name, node, self.rewrite(graph, node))


def settle(
    graph: Graph,
    quantizers: Iterable[str],
    fate: QuantizeFate | DequantizeFate,
    reason: str,
    readers: Iterable[str] = (),
) -> None:
    """Records where a half of each quantizer went: the quantize half, or the dequantize half for
    each reader.
    """
    half = Half.QUANTIZE if isinstance(fate, QuantizeFate) else Half.DEQUANTIZE
    for quantizer in quantizers:
        for reader in readers if half is Half.DEQUANTIZE else ("",):
            graph.fates.append(Fate(quantizer, half, fate, reason, reader))


def fits_f32(values: npt.NDArray[np.float64]) -> bool:
    """True when every value is finite and normal in f32, so that it may become a scale."""
    magnitude = np.abs(values)
    info = np.finfo(np.float32)
    return bool(np.all((magnitude >= info.tiny) & (magnitude <= info.max)))


def holds_f32(values: npt.NDArray[np.float64]) -> bool:
    """True when f32 holds every value as a finite number, zeros among them."""
    return bool(np.all(np.abs(values) <= np.finfo(np.float32).max))


def rescaled(
    quant: Quantization, factor: npt.NDArray[np.float64], axis: int | None
) -> Quantization | None:
    """The parameters of the same codes when what they decode to is multiplied, along `axis` where
    the factor has several entries; None where a scale is no normal f32, and for a factor without
    entries.
    """
    scales = quant.scales.astype(np.float64) * factor
    known = scales.size > 0 and fits_f32(scales)
    return Quantization.of(scales, quant.zero_points, axis) if known else None


def swap(graph: Graph, old: Node, value: str) -> None:
    """Makes readers of `old` read `value` (of the same type), and erases `old`.

    Where the graph returns the output of `old`, the name goes to `value`'s producer, so that graph
    outputs keep their names; a value without a producer, or one that the graph returns too, stays
    behind an Identity.
    """
    name, returned = old.output, graph.is_output(old.output)
    if returned and (graph.producer(value) is None or graph.is_output(value)):
        value = graph.add(
            "Identity",
            [value],
            name=old.name,
            outputs=[graph.fresh(f"{name}/kept")],
            origin=old.origin,
        ).output
    graph.replace_uses(name, value)
    graph.erase(old)
    if returned:
        graph.rename_value(value, name)
