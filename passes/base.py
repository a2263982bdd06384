"""What a pass is, what it promises, and how a pipeline of passes is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from ..ir.decision import Decision, Outcome
from ..ir.graph import Graph
from ..ir.node import Node, subject

__all__ = ["Contract", "Observer", "Pass", "fired", "fits_f32", "refused", "run_pipeline", "swap"]


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


class Pass(Protocol):
    """A frozen dataclass whose fields are its options. `run` edits the graph in place; running it
    twice changes nothing more.
    """

    @property
    def name(self) -> str:
        """What it is called in decisions and documents."""
        ...

    @property
    def contract(self) -> Contract:
        """What it promises about the numbers."""
        ...

    def run(self, graph: Graph) -> None:
        """Rewrites the graph; leaves a Decision for every place where its anchor matched."""
        ...


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


def fired(graph: Graph, rule: str, node: Node, reason: str) -> None:
    """Records that a rule fired at a node."""
    graph.decide(Decision(rule, subject(node), Outcome.FIRED, reason))


def refused(
    graph: Graph,
    rule: str,
    node: Node,
    reason: str,
    *,
    expected: str = "",
    found: str = "",
    hint: str = "",
) -> None:
    """Records that a rule whose anchor matched was refused, and which predicate failed."""
    graph.decide(Decision(rule, subject(node), Outcome.REFUSED, reason, expected, found, hint))


def fits_f32(values: npt.NDArray[np.float64]) -> bool:
    """True when every value is finite and normal in f32, so that it may become a scale."""
    magnitude = np.abs(values)
    info = np.finfo(np.float32)
    return bool(np.all((magnitude >= info.tiny) & (magnitude <= info.max)))


def swap(graph: Graph, old: Node, value: str) -> None:
    """Makes readers of `old` read `value` (of the same type), and erases `old`.

    Where the graph returns the output of `old`, the name goes to `value`'s producer, so that graph
    outputs keep their names; a value without a producer, or one that the graph returns too, stays
    behind an Identity.
    """
    name = old.output
    producer = graph.producer(value)
    if graph.is_output(name) and (producer is None or graph.is_output(value)):
        keeper = graph.add(
            "Identity",
            [value],
            name=old.name,
            outputs=[graph.fresh(f"{name}/kept")],
            origin=old.origin,
        )
        value, producer = keeper.output, keeper
    returned = graph.is_output(name)
    graph.replace_uses(name, value)
    graph.erase(old)
    if returned:
        graph.rename_value(value, name)
