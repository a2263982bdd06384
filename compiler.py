"""The whole way in one call: file -> graph -> passes -> plan, and sessions over models and plans alike."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from typing import Literal

from .composer.compose import plan_from_graph
from .composer.plan import Plan
from .composer.plan_file import is_plan, read_plan
from .composer.verify import check_plan
from .frontend import DEFAULT, Budgets, ModelSource, graph_from_onnx
from .ir.cleanup import erase_dead
from .ir.graph import Graph
from .ir.verify import IMPORTED, SPLIT, WELL_FORMED, check
from .passes import PIPELINE, Observer, Pass, run_pipeline
from .runtime.session import InferenceSession as PlanSession

__all__ = ["InferenceSession", "compile", "load_plan"]


def compile(
    model: ModelSource,
    *,
    target: str = "onednn-v3",
    budgets: Budgets = DEFAULT,
    observers: Sequence[Observer] = (),
) -> Plan:
    """Compiles a quantized ONNX model into a plan of fused int8 primitives.

    Args:
        model: path of an ONNX file, its bytes, or a loaded `onnx.ModelProto`.
        target: `onednn-v3` (one scale for each argument) or `onednn-v2` (output scales).
        budgets: limits on what the file may ask for.
        observers: called with (pass, graph) after each pass.

    Raises:
        InvalidModel: the file is no valid ONNX model, or goes past a budget.
        UnsupportedOp: an operator of an unknown domain.
        InvalidInput: no such file or target.
    """
    graph = graph_from_onnx(model, budgets=budgets)
    check(graph, IMPORTED)
    watchers = list(observers)
    if os.environ.get("FQFUSE_CHECK") == "1":
        watchers.append(_check_after)
    run_pipeline(graph, PIPELINE, watchers)
    erase_dead(graph)
    check(graph, SPLIT, blame="the pipeline of passes")
    plan = plan_from_graph(graph, target, {"target": target})
    check_plan(plan, blame="the composer")
    return plan


def _check_after(step: Pass, graph: Graph) -> None:
    check(graph, WELL_FORMED, blame=step.name)


def load_plan(source: str | PathLike[str] | bytes) -> Plan:
    """Reads a plan file.

    Raises:
        PlanError: the file is no plan, damaged, or of another version.
        InvalidInput: no such file.
    """
    return read_plan(source)


class InferenceSession(PlanSession):
    """Runs a plan, in the shape of ONNX Runtime's session.

    Args:
        model: a Plan, a plan file, or an ONNX model, which is compiled with the default options first.
        backend: `numpy`, `onednn`, or `auto`: oneDNN where it is installed and exact on this CPU, NumPy otherwise.
        threads: how many threads a run may use; None: as many as the process may run on.

    Raises:
        FqfuseError: what `compile` or `load_plan` raise, or BackendUnavailable.
    """

    def __init__(
        self,
        model: Plan | str | PathLike[str] | bytes,
        backend: Literal["auto", "numpy", "onednn"] = "auto",
        threads: int | None = None,
    ) -> None:
        super().__init__(_plan_of(model), backend, threads)


def _plan_of(model: Plan | str | PathLike[str] | bytes) -> Plan:
    if isinstance(model, Plan):
        return model
    return read_plan(model) if is_plan(model) else compile(model)
