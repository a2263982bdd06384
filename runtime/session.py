"""Sessions: a plan, bound to a runtime, with the shape of ONNX Runtime's InferenceSession."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..composer.plan import Plan
from ..composer.plan_file import plan_bytes, read_plan
from ..errors import BackendUnavailable, InvalidInput
from ..ir.ops.spec import Array
from ..ir.types import DType, TensorType
from .numpy_runtime import NumpyExecutor
from .placement import Placement
from .processors import default_threads
from .shapes import symbol_sizes

if TYPE_CHECKING:
    from .onednn.executor import OneDnnExecutor

__all__ = ["BACKENDS", "InferenceSession", "NodeArg"]

BACKENDS = ("auto", "numpy", "onednn")

_ORT_TYPES = {
    DType.F32: "float",
    DType.F64: "double",
    DType.F16: "float16",
    DType.BF16: "bfloat16",
    DType.S4: "int4",
    DType.U4: "uint4",
    DType.S8: "int8",
    DType.U8: "uint8",
    DType.S16: "int16",
    DType.U16: "uint16",
    DType.S32: "int32",
    DType.U32: "uint32",
    DType.S64: "int64",
    DType.U64: "uint64",
    DType.BOOL: "bool",
    DType.STRING: "string",
}


@dataclass(frozen=True)
class NodeArg:
    """An input or output of the model, as ONNX Runtime describes it.

    Attributes:
        name: its name in the model.
        shape: sizes, and names of sizes that are known at run time only; None when even the rank is unknown.
        type: `tensor(float)`, `tensor(uint8)` ...
    """

    name: str
    shape: tuple[int | str, ...] | None
    type: str


class InferenceSession:
    """A plan, ready to run.

    A session may be used by many threads at once, pickled, sent to spawned processes and used in forked ones. The arrays it returns belong
    to the caller.

    Args:
        path_or_plan: a plan or the path of a plan file (`fqfuse.InferenceSession` also takes an ONNX model, and compiles it).
        backend: `numpy`, `onednn`, or `auto`: oneDNN where it is installed, else NumPy; on a CPU without VNNI only the steps that cannot
            saturate there. `session.backend` tells which it is, `session.backend_reason` why, `session.placement()` where each step runs.
        threads: how many threads a run may use, the caller's included (None: one for each processor that the process may use).

    Raises:
        BackendUnavailable: `onednn` was asked for and is not installed.
        InvalidInput: an argument is wrong, or the file cannot be read.
        PlanError, InvalidModel, UnsupportedOp: the file's content.
    """

    def __init__(self, path_or_plan: str | PathLike[str] | Plan, backend: str = "auto", threads: int | None = None) -> None:
        if backend not in BACKENDS:
            raise InvalidInput(f"no backend {backend!r}", hint=f"choose one of: {', '.join(BACKENDS)}")
        self._asked = backend
        self._threads = _checked_threads(threads)
        self.plan = path_or_plan if isinstance(path_or_plan, Plan) else _load(path_or_plan)
        self._executor, self.backend, self.backend_reason = _executor(self.plan, backend, self._threads)
        self._inputs = {name: self.plan.type(name) for name in self.plan.inputs}
        self._exactly = {name: (type_.dtype.numpy, type_.shape) for name, type_ in self._inputs.items()}  # what needs no further check
        shapes = [type_.shape for type_ in self._inputs.values()]
        self._static = all(shape is not None and all(isinstance(dim, int) for dim in shape) for shape in shapes)
        if self._static:
            self._executor.bind({name: type_.static_shape for name, type_ in self._inputs.items()})

    @property
    def threads(self) -> int:
        """How many threads a run may use."""
        return self._threads

    def get_inputs(self) -> list[NodeArg]:
        """The inputs of the model, in its order."""
        return [_node_arg(name, self.plan.type(name)) for name in self.plan.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs of the model, in its order."""
        return [_node_arg(name, self.plan.type(name)) for name in self.plan.outputs]

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, npt.ArrayLike]) -> list[Array]:
        """Runs the model.

        Args:
            output_names: which outputs, in which order; None or empty: all.
            feeds: an array for each input.

        Returns:
            The outputs, as arrays of the caller's own.

        Raises:
            InvalidInput: an unknown output or input, a missing input, or one of another type or shape.
        """
        unknown = [name for name in output_names or () if name not in self.plan.outputs]
        if unknown:
            raise InvalidInput(
                f"unknown outputs: {', '.join(unknown)}",
                where=self.plan.name,
                hint=f"the model's outputs are: {_listed(self.plan.outputs)}",
            )
        found = self._executor.run(self._checked(feeds))
        if not output_names:
            return found
        by_name = dict(zip(self.plan.outputs, found, strict=True))
        return [by_name[name] for name in output_names]

    def run_steps(self, feeds: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Every value that a step of the plan writes, by name, in execution order.

        Raises:
            InvalidInput: as `run`.
        """
        return self._executor.run_all(self._checked(feeds))

    def placement(self) -> tuple[Placement, ...]:
        """Where each step runs, and why: on oneDNN by which implementation, as a mere view, or on NumPy.

        Raises:
            InvalidInput: the model's shapes are symbolic, and nothing has been run yet.
        """
        if isinstance(self._executor, NumpyExecutor):
            return tuple(Placement(step, "numpy", reason=self.backend_reason) for step in self.plan.steps)
        return self._executor.placement()

    def __getstate__(self) -> dict[str, object]:
        # The plan as the bytes of its file: that form is stable and checked, and shares nothing with this process.
        return {"plan": plan_bytes(self.plan), "backend": self._asked, "threads": self._threads}

    def __setstate__(self, state: dict[str, object]) -> None:
        plan, backend, threads = state["plan"], state["backend"], state["threads"]
        if not isinstance(plan, bytes) or not isinstance(backend, str) or not isinstance(threads, int):
            raise InvalidInput("this is not the state of a session")
        InferenceSession.__init__(self, read_plan(plan), backend, threads)

    # -- feeds -----------------------------------------------------------------------------------------------------------------

    def _checked(self, feeds: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """The feeds as arrays of the right types and shapes."""
        if feeds.keys() != self._inputs.keys():
            self._refuse_names(feeds)
        arrays = {name: np.asarray(feeds[name]) for name in self._inputs}
        for name, array in arrays.items():
            if (array.dtype, array.shape) != self._exactly[name]:
                _check_feed(name, array, self._inputs[name])
        if not self._static:
            symbol_sizes(self.plan, {name: array.shape for name, array in arrays.items()})
        return arrays

    def _refuse_names(self, feeds: Mapping[str, npt.ArrayLike]) -> None:
        names = _listed(self.plan.inputs)
        unknown = [name for name in feeds if name not in self._inputs]
        if unknown:
            raise InvalidInput(f"unknown inputs: {', '.join(unknown)}", where=self.plan.name, hint=f"the model's inputs are: {names}")
        missing = [name for name in self._inputs if name not in feeds]
        if missing:
            raise InvalidInput(f"missing inputs: {', '.join(missing)}", where=self.plan.name, hint=f"the model's inputs are: {names}")


def _check_feed(name: str, array: Array, type_: TensorType) -> None:
    wanted = type_.dtype.numpy
    if array.dtype != wanted and not (type_.dtype is DType.STRING and array.dtype.kind in "UO"):
        raise InvalidInput(
            f"input {name} has elements of type {array.dtype}, expected {wanted}",
            where=f"input {name}: {type_}",
            hint=f"convert it: array.astype('{wanted}')",
        )
    if type_.shape is None:
        return
    if array.ndim != len(type_.shape):
        raise InvalidInput(
            f"input {name} has {array.ndim} dimensions {list(array.shape)}, expected {len(type_.shape)}",
            where=f"input {name}: {type_}",
            hint="reshape it, or add the batch dimension",
        )
    for axis, (dim, size) in enumerate(zip(type_.shape, array.shape, strict=True)):
        if isinstance(dim, int) and dim != size:
            raise InvalidInput(
                f"input {name} has size {size} in dimension {axis}, expected {dim}",
                where=f"input {name}: {type_}",
                hint="feed the shape that the model was made for, or export it with a symbolic dimension there",
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _checked_threads(threads: int | None) -> int:
    if threads is None:
        return default_threads()
    try:
        count = operator.index(threads)
    except TypeError:
        count = 0
    if count < 1:
        raise InvalidInput(f"threads must be an integer of at least 1, found {threads!r}", hint="leave it out for one thread a processor")
    return count


def _node_arg(name: str, type_: TensorType) -> NodeArg:
    return NodeArg(name, type_.shape, f"tensor({_ORT_TYPES[type_.dtype]})")


def _executor(plan: Plan, backend: str, threads: int) -> tuple[NumpyExecutor | OneDnnExecutor, str, str]:
    """The executor, its name, and why it is this one."""
    if backend == "numpy":
        return NumpyExecutor(plan, threads), "numpy", "the backend numpy was asked for"
    # Imported here: loading the library takes time that the NumPy runtime need not spend.
    from .onednn.executor import OneDnnExecutor

    try:
        executor = OneDnnExecutor(plan, threads, exact=backend == "auto")
    except BackendUnavailable as error:
        if backend == "onednn":
            raise
        return NumpyExecutor(plan, threads), "numpy", f"oneDNN cannot be used: {error.what}"
    return executor, "onednn", executor.description


def _load(source: str | PathLike[str]) -> Plan:
    """The plan in a plan file (`fqfuse.InferenceSession` also takes models)."""
    return read_plan(source)
