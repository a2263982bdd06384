"""fqfuse compiles quantized ONNX models into plans of fused int8 primitives, says why each
quantizer fused or did not, and runs them.

    plan = fqfuse.compile("model.onnx")
    fqfuse.save_plan(plan, "model.plan.onnx")
    session = fqfuse.InferenceSession("model.plan.onnx")
    outputs = session.run(None, {"input": array})

The names, each with help of its own (`help(fqfuse.compile)`):

    compile             an ONNX model to a Plan
    save_plan           writes a plan as one ONNX file
    load_plan           reads a plan file, and checks it
    convert             a plan for oneDNN 2 to one for oneDNN 3, or for the unified scheme
    export              a model of any dialect to standard ONNX that other runtimes fuse
    findings            what of a plan costs most or is wrong, and what to change
    why                 where a node, quantizer or value ended, and what stands in the way
    diff                what differs between two plans, step by step
    compare             how far a quantized model is from its f32 original, layer by layer
    simulate            what a quantized model answers on CPUs without VNNI, and 7 bits for its layers
    fix                 a quantized model repaired, as far as that takes no training
    bench               how fast a model runs, beside other runtimes and step by step
    Plan                the steps, with findings(), steps_table(), fates(), decisions()
    InferenceSession    runs a plan or a model
    Predictor           a session that maps rows of arrays and Arrow, for Ray Data, Spark and Dask
    SessionOptions      in the place of ONNX Runtime's (docs/onnxruntime.md has its other names)
    Budgets             limits on what a model may ask for
    FqfuseError         what is wrong and the user can mend; the next five are its kinds
    InvalidModel        the model breaks the rules of ONNX, or a budget
    UnsupportedOp       an operator that nothing here can run
    PlanError           a plan file cannot be read or written, or no plan can be made
    BackendUnavailable  the runtime that was asked for cannot run here
    InvalidInput        a wrong name, shape, type, path or option
    InternalError       a bug in fqfuse; not an FqfuseError
    __version__         of the installed package

What takes long to import is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from fqfuse.errors import (
    BackendUnavailable,
    FqfuseError,
    InternalError,
    InvalidInput,
    InvalidModel,
    PlanError,
    UnsupportedOp,
)

if TYPE_CHECKING:
    from fqfuse.accuracy.document import compare
    from fqfuse.accuracy.fixing import fix
    from fqfuse.accuracy.simulate import simulate
    from fqfuse.batch.predictor import Predictor
    from fqfuse.compiler import compile, load_plan
    from fqfuse.explain import diff, why
    from fqfuse.exporting import export
    from fqfuse.frontend.budgets import Budgets
    from fqfuse.inference import InferenceSession
    from fqfuse.measure.bench import bench
    from fqfuse.plan.conversion.convert import convert
    from fqfuse.plan.file import save_plan
    from fqfuse.plan.types import Plan
    from fqfuse.report.verdict.findings import findings
    from fqfuse.runtime.like_onnxruntime import SessionOptions

    __version__: str

__all__ = [
    "BackendUnavailable",
    "Budgets",
    "FqfuseError",
    "InferenceSession",
    "InternalError",
    "InvalidInput",
    "InvalidModel",
    "Plan",
    "PlanError",
    "Predictor",
    "SessionOptions",
    "UnsupportedOp",
    "bench",
    "compare",
    "compile",
    "convert",
    "diff",
    "export",
    "findings",
    "fix",
    "load_plan",
    "save_plan",
    "simulate",
    "why",
]

_LAZY = {
    "Budgets": "fqfuse.frontend.budgets",
    "InferenceSession": "fqfuse.inference",
    "Plan": "fqfuse.plan.types",
    "Predictor": "fqfuse.batch.predictor",
    "SessionOptions": "fqfuse.runtime.like_onnxruntime",
    "bench": "fqfuse.measure.bench",
    "compare": "fqfuse.accuracy.document",
    "compile": "fqfuse.compiler",
    "convert": "fqfuse.plan.conversion.convert",
    "diff": "fqfuse.explain",
    "export": "fqfuse.exporting",
    "findings": "fqfuse.report.verdict.findings",
    "fix": "fqfuse.accuracy.fixing",
    "load_plan": "fqfuse.compiler",
    "save_plan": "fqfuse.plan.file",
    "simulate": "fqfuse.accuracy.simulate",
    # Of ONNX Runtime's module, for `import fqfuse as ort`; docs/onnxruntime.md lists them.
    "ExecutionMode": "fqfuse.onnxruntime_names",
    "ExecutionOrder": "fqfuse.onnxruntime_names",
    "GraphOptimizationLevel": "fqfuse.onnxruntime_names",
    "IOBinding": "fqfuse.onnxruntime_names",
    "OrtValue": "fqfuse.onnxruntime_names",
    "RunOptions": "fqfuse.onnxruntime_names",
    "capi": "fqfuse.onnxruntime_names",
    "get_all_providers": "fqfuse.onnxruntime_names",
    "get_available_providers": "fqfuse.onnxruntime_names",
    "get_device": "fqfuse.onnxruntime_names",
    "set_default_logger_severity": "fqfuse.onnxruntime_names",
    "set_default_logger_verbosity": "fqfuse.onnxruntime_names",
    "set_seed": "fqfuse.onnxruntime_names",
    # What methods of Plan call; not listed, because the methods are.
    "decisions_table": "fqfuse.report.tables",
    "fates_table": "fqfuse.report.tables",
    "notebook_html": "fqfuse.report.notebook",
    "steps_table": "fqfuse.report.tables",
    "to_html": "fqfuse.report.html.page",
    "why": "fqfuse.explain",
}


def __getattr__(name: str) -> object:
    """Imports a public name at its first use (PEP 562)."""
    if name == "__version__":
        return _version()
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, whether they were used yet or not."""
    return sorted([*__all__, "__version__"])


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fqfuse")
    except PackageNotFoundError as error:
        what = "fqfuse is imported from a folder and not installed, so that it has no version"
        raise AttributeError(what) from error
