"""The whole way in one call: file -> graph -> passes -> plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike

from .composer.compose import plan_from_graph
from .errors import InvalidInput
from .frontend import (
    DEFAULT,
    BodyModels,
    Budgets,
    ModelSource,
    Source,
    bodies_of,
    check_budgets,
    graph_from_onnx,
    read_model,
    stated_shapes,
    told_sizes,
)
from .ir.approximations import check_approximate
from .ir.graph import Graph
from .ir.ops import OPS
from .ir.ops.spec import Attr
from .ir.reach import explain_few_codes
from .ir.verify import IMPORTED, SPLIT, WELL_FORMED, check
from .passes import ALIGNED, DYNAMIC, Observer, Pass, begin, has_place, optimize
from .plan.arguments import in_order, with_roles
from .plan.file import read_plan
from .plan.open_sizes import USUAL
from .plan.stated import SHAPES
from .plan.targets import check_target
from .plan.types import Bodies, Plan, Step
from .plan.verify import check_plan


def compile(
    model: ModelSource | Source,
    *,
    target: str = "onednn-v3",
    dynamic: str | None = None,
    budgets: Budgets = DEFAULT,
    observers: Sequence[Observer] = (),
    approximate: Sequence[str] = (),
) -> Plan:
    """Compiles a quantized ONNX model into a plan of fused int8 primitives.

    Args:
        model: path of an ONNX file, its bytes, or a loaded `onnx.ModelProto` (or what
            `frontend.read_model` has read).
        target: `onednn-v3` (one scale for each argument), `onednn-v2` (output scales), or `unified`
            (scales on operands and destinations everywhere; NumPy only).
        dynamic: quantizes what no quantizer of the model does, by the range that it has at run
            time, in front of products with constant weights (whose f32 weights become s8, one scale
            for each output channel): `matmul` for matrix products, `all` for convolutions, too. Where
            weights are codes in blocks, each block of a row has a range of its own.
            None: what the model computes in f32 stays f32.
        budgets: limits on what the file may ask for.
        observers: called with (pass, graph) after each pass over the model; not over the bodies of If,
            Loop and Scan, which are compiled by themselves.
        approximate: names of approximations that may be made: `int8-recurrence` (LSTM and GRU in
            int8, where nothing in the model quantizes the hidden state), `middle-rounding` and
            `residual-rounding` (quantizers inside a step do not round), `small-shift` and
            `fractional-zero-point` (zero points of FakeQuantize become integers); see
            docs/numerics.md.

    Raises:
        InvalidModel: the file is no valid ONNX model, or goes past a budget.
        UnsupportedOp: an operator of an unknown domain.
        InvalidInput: no such file, target, word for `dynamic` or approximation, or an argument of
            another kind.
    """
    told = _settings(target, dynamic, budgets, approximate)
    watchers = _watchers(observers)
    source = read_model(model, budgets)
    plan = _compiled(source, told, watchers)
    words: dict[str, Attr] = {
        SHAPES: stated_shapes(source.model, plan),
        USUAL: told_sizes(source.model, plan),
    }
    told_words = {name: value for name, value in words.items() if value}
    plan = replace(plan, options={**plan.options, **told_words}) if told_words else plan
    check_plan(plan, blame="the composer")
    return plan


def compile_with_more(
    model: ModelSource | Source,
    names: Sequence[str],
    *,
    target: str = "onednn-v3",
    dynamic: str | None = None,
    approximate: Sequence[str] = (),
) -> Iterator[tuple[str, Plan]]:
    """What `compile` makes of a model with one approximation more, for each of some; what is the same
    for all of them is done once: the import, and the passes for those that the composer makes.

    Args:
        model: as for `compile`.
        names: of approximations.
        target, dynamic: as for `compile`.
        approximate: those that are made in any case.

    Yields:
        Name and plan; none for what a pass would make and finds no place for: that changes nothing.

    Raises:
        InvalidModel, UnsupportedOp, InvalidInput: as `compile`.
    """
    if not names:
        return
    begun = begin(_imported(model, DEFAULT, 0), dynamic=dynamic)
    bodies = any(bodies_of(begun, node) is not None for node in begun.nodes())
    shared: Graph | None = None
    for name in names:
        told = _settings(target, dynamic, DEFAULT, (*approximate, name))
        if name not in ALIGNED:
            shared = _optimized(begun.copy(), told, [], begun=True) if shared is None else shared
            graph = shared.copy()
        elif bodies or has_place(begun.copy(), name, approximate):
            graph = _optimized(begun.copy(), told, [], begun=True)
        else:
            continue
        plan = _planned(graph, told, 0)
        check_plan(plan, blame="the composer")
        yield name, plan


@dataclass(frozen=True)
class _Settings:
    """What is the same for a model and the bodies in it."""

    target: str
    dynamic: str | None
    budgets: Budgets
    approximate: tuple[str, ...]
    options: Mapping[str, Attr]


def _settings(
    target: str, dynamic: str | None, budgets: Budgets, approximate: Sequence[str]
) -> _Settings:
    """What was asked for, checked."""
    check_target(target)
    check_dynamic(dynamic)
    check_budgets(budgets)
    options: dict[str, Attr] = {"target": target}
    options |= {} if dynamic is None else {"dynamic": dynamic}
    named = check_approximate(approximate)
    options |= {"approximate": named} if named else {}
    return _Settings(target, dynamic, budgets, named, options)


def _compiled(
    model: ModelSource | Source, told: _Settings, watchers: list[Observer], depth: int = 0
) -> Plan:
    """The plan of a model, which may be a body in so many others."""
    graph = _imported(model, told.budgets, depth)
    return _planned(_optimized(graph, told, watchers), told, depth)


def _imported(model: ModelSource | Source, budgets: Budgets, depth: int) -> Graph:
    graph = graph_from_onnx(model, budgets=budgets, depth=depth)
    check(graph, IMPORTED)
    explain_few_codes(graph)
    return graph


def _optimized(
    graph: Graph, told: _Settings, watchers: list[Observer], *, begun: bool = False
) -> Graph:
    """The same graph, after all passes; `begun`: after those of `begin` already."""
    if os.environ.get("FQFUSE_CHECK") == "1":
        watchers.append(_check_after)
    optimize(graph, tuple(watchers), told.dynamic, told.approximate, begun=begun)
    check(graph, SPLIT, blame="the pipeline of passes")
    return graph


def _planned(graph: Graph, told: _Settings, depth: int) -> Plan:
    """The plan of an optimized graph."""
    found = {
        node.name: (node.outputs, bodies)
        for node in graph.nodes()
        if (bodies := bodies_of(graph, node)) is not None
    }
    inside = {name: bodies.inside for name, (_, bodies) in found.items()}
    plan = plan_from_graph(graph, told.target, told.options, inside)
    return _with_bodies(plan, dict(found.values()), told, depth)


def _with_bodies(
    plan: Plan, found: Mapping[tuple[str, ...], BodyModels], told: _Settings, depth: int
) -> Plan:
    """The plan with plans for the bodies of If, Loop and Scan, by the outputs of their steps; they hold
    the constants that they read.
    """
    steps = tuple(
        _with_plans(step, found[step.outputs], told, depth) if step.outputs in found else step
        for step in plan.steps
    )
    return replace(plan, steps=steps) if found else plan


def _with_plans(step: Step, bodies: BodyModels, told: _Settings, depth: int) -> Step:
    plans = tuple(_compiled(model, told, [], depth + 1) for model in bodies.models)
    row = OPS[step.op]
    values = in_order(row, step.args) or ()
    kept = [*values[: bodies.own], *(values[place] for place in bodies.fed)]
    return replace(
        step,
        args=with_roles(row, kept),
        params={**step.params, "proto": b""},
        bodies=Bodies(plans, bodies.states, bodies.scanned),
    )


def check_dynamic(dynamic: object) -> None:
    """Refuses what is no word for which products are quantized at run time.

    Raises:
        InvalidInput: it is something else.
    """
    if dynamic is not None and (not isinstance(dynamic, str) or dynamic not in DYNAMIC):
        raise InvalidInput(
            f"there is no dynamic quantization of {dynamic!r}",
            where="dynamic",
            hint=f"choose one of {', '.join(DYNAMIC)}, or leave it out",
        )


def _watchers(observers: object) -> list[Observer]:
    if not isinstance(observers, Sequence) or not all(map(callable, observers)):
        raise InvalidInput(
            "the observers are no list of functions",
            hint="pass observers=[function of (pass, graph)]",
        )
    return list(observers)


def _check_after(step: Pass, graph: Graph) -> None:
    check(graph, WELL_FORMED, blame=step.name)


def load_plan(source: str | PathLike[str] | bytes) -> Plan:
    """Reads a plan file.

    Raises:
        PlanError: the file is no plan, damaged, or of another version.
        InvalidInput: no such file.
    """
    return read_plan(source)
