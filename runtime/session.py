"""Sessions: a plan, bound to a runtime, with the shape of ONNX Runtime's InferenceSession."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial, wraps
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import BackendUnavailable, InvalidInput
from ..ir.ops.spec import Array
from ..ir.types import MOST_DIMENSIONS, DType, TensorType, dimensions, is_static
from ..locks import ProcessLock
from ..plan.file import plan_bytes, read_plan
from ..plan.saturation import StepSums, sums_of_plan
from ..plan.shapes import UnlikeSizes, symbol_sizes
from ..plan.stated import stated_shapes
from ..plan.types import Plan, short_name
from .budget import RunBudget
from .executor import StepTimes
from .footprint import SessionMemory
from .foreign_types import called, carried, conversion_of, foreign_types
from .like_onnxruntime import CPU, ModelMeta, NodeArg, meta_from_state, type_name
from .numerics import PROFILES, check_isa
from .numpy_runtime import NumpyExecutor
from .placement import Placement
from .processors import default_threads, run_budget
from .profile import Profile, checked_runs, measure

if TYPE_CHECKING:
    from .lowering.executor import OneDnnExecutor

T = TypeVar("T")
R = TypeVar("R")

BACKENDS = ("auto", "numpy", "onednn")

_STATE = {
    "plan": bytes,
    "backend": str,
    "threads": int,
    "run_bytes": int | None,
    "meta": dict,
    "isa": str | None,
    "exact": bool,
}

_MOST_THREADS = 1024  # each has memory of its own


Ps = ParamSpec("Ps")


def _unlike_too(
    method: Callable[Concatenate[InferenceSession, Ps], R],
) -> Callable[Concatenate[InferenceSession, Ps], R]:
    """The method of a session, for feeds that give one size several values, too."""

    @wraps(method)
    def called(self: InferenceSession, /, *args: Ps.args, **kwargs: Ps.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except UnlikeSizes as error:
            other = self._with_sizes_apart(error)
        return method(other, *args, **kwargs)

    return called


class InferenceSession:
    """A plan, ready to run.

    A session may be used by many threads at once, pickled, sent to spawned processes and used in
    forked ones. The arrays it returns belong to the caller. `with` closes it at the end, which gives
    its memory back.

    Args:
        path_or_plan: a plan or the path of a plan file (`fqfuse.InferenceSession` also takes an
            ONNX model, and compiles it).
        backend: `numpy`, `onednn`, or `auto`: oneDNN where it is installed, else NumPy.
            `session.backend` names it, `session.backend_reason` says why, `session.placement()` where
            each step runs.
        threads: how many threads a run may use, the caller's included (None: one for each processor
            that the process may use).
        run_bytes: the most that one value, or the memory of one run, may take (None: the machine's
            memory, within the container's limit).
        isa: the NumPy runtime gives what oneDNN 3.2 would give on a CPU whose newest instruction
            set this is: `avx512_core`, `avx2` or `sse41`, whose int8 products lose bits, or `vnni`
            (None: exact products, which are those of `vnni`; docs/contributing/isa.md).
        exact: False: on a CPU without VNNI, take oneDNN's own int8 kernels, whose sums of pairs of
            products saturate there, as those of other runtimes do. They are faster, and their results
            may be wrong.
        apart: compiles the model again, so that dimensions that share a name may be fed unlike; it is
            called once, by the first run that needs it. None: such a run is refused.

    Raises:
        BackendUnavailable: `onednn` was asked for and is not installed.
        InvalidInput: an argument is wrong, or the file cannot be read.
        PlanError, InvalidModel, UnsupportedOp: the file's content.
    """

    def __init__(
        self,
        path_or_plan: str | PathLike[str] | Plan,
        backend: str = "auto",
        threads: int | None = None,
        *,
        run_bytes: int | None = None,
        isa: str | None = None,
        exact: bool = True,
        apart: Callable[[], Plan] | None = None,
    ) -> None:
        check_backend(backend)
        check_isa(isa, backend)
        self._asked, self._isa, self._exact = backend, isa, bool(exact)
        self._threads = checked_threads(threads)
        self._run_bytes = run_bytes
        self._meta: ModelMeta | None = None
        self._apart, self._making = apart, ProcessLock()
        self._other: InferenceSession | None = None
        self.plan = path_or_plan if isinstance(path_or_plan, Plan) else read_plan(path_or_plan)
        self._executor, self.backend, self.backend_reason = _executor(
            self.plan, backend, self._threads, run_budget(run_bytes), isa, exact=self._exact
        )
        self._inputs = {name: self.plan.type(name) for name in self.plan.inputs}
        # what needs no further check
        self._exactly = {
            name: (type_.dtype.numpy, None if type_.dtype.is_carried else type_.shape)
            for name, type_ in self._inputs.items()
        }
        shapes = [type_.shape for type_ in self._inputs.values()]
        self._foreign = foreign_types(self.plan)
        self._strings = [
            name for name, type_ in self._inputs.items() if type_.dtype is DType.STRING
        ]
        self._static = all(
            shape is not None and all(isinstance(dim, int) for dim in shape) for shape in shapes
        )
        if self._static:
            sizes = {name: type_.static_shape for name, type_ in self._inputs.items()}
            _within_memory(self._executor.bind, sizes)

    @property
    def threads(self) -> int:
        """How many threads a run may use."""
        return self._threads

    def get_inputs(self) -> list[NodeArg]:
        """The inputs of the model, in its order."""
        return _described(self.plan, self.plan.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs of the model, in its order."""
        return _described(self.plan, self.plan.outputs)

    def get_modelmeta(self) -> ModelMeta:
        """What the model's file says about it; of a plan the name of the graph only."""
        return self._meta or ModelMeta(graph_name=self.plan.name)

    def get_providers(self) -> list[str]:
        """ONNX Runtime's word for the CPU; `session.backend` says which runtime it is here."""
        return [CPU]

    def __repr__(self) -> str:
        """One line."""
        closed = self.__dict__.get("_closed")
        if closed is not None:
            return f"<InferenceSession '{short_name(closed[0])}', closed>"
        return (
            f"<InferenceSession '{short_name(self.plan.name)}' on {self.backend}, "
            f"{self.threads} thread{'s' if self.threads > 1 else ''}, {len(self.plan.steps):,} steps>"
        )

    def close(self) -> None:
        """Gives the memory of the session back, as soon as no run uses it; whoever uses the session
        afterwards is told that it is closed. Closing it again does nothing.
        """
        if "_closed" not in self.__dict__:
            name, held = self.plan.name, frozenset(self.__dict__)
            self.__dict__.clear()
            self.__dict__["_closed"] = (name, held)

    def __enter__(self) -> Self:
        _ = self.plan  # of a closed session this says so
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # it would hide misspelt names

        def __getattr__(self, name: str) -> NoReturn:
            """Asked only for what is not there: costs an open session nothing."""
            closed, held = self.__dict__.get("_closed", ("", ()))
            if name in held:
                raise InvalidInput(
                    "the session is closed", where=closed, hint="make a new one, or close it later"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _with_sizes_apart(self, error: UnlikeSizes) -> InferenceSession:
        """A session in which dimensions that share a name are sizes of their own."""
        if self._apart is None:
            raise error
        with self._making:
            if self._other is not None:
                return self._other
            self._other = InferenceSession(
                self._apart(),
                self._asked,
                self._threads,
                run_bytes=self._run_bytes,
                isa=self._isa,
                exact=self._exact,
            )
        warnings.warn(
            f"{error.what} ({error.where}): the model was compiled again, with sizes of their own",
            UserWarning,
            stacklevel=3,  # behind _unlike_too: the caller
        )
        return self._other

    @_unlike_too
    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, npt.ArrayLike] | None = None,
        run_options: object = None,
        *,
        input_feed: Mapping[str, npt.ArrayLike] | None = None,
    ) -> list[Any]:
        """Runs the model.

        Args:
            output_names: which outputs, in which order; None or empty: all.
            feeds: an array for each input; for types that NumPy lacks one of ml_dtypes, or of the type
                that carries their values (f32, s8, u8), with no other value in it.
            run_options: `fqfuse.RunOptions` or onnxruntime's; once their `terminate` is True, the run ends
                behind the step that it is in.
            input_feed: ONNX Runtime's name for `feeds`.

        Returns:
            The outputs, as arrays of the caller's own; those of bf16 and of other
            types that NumPy lacks in types of ml_dtypes.

        Raises:
            InvalidInput: an unknown output or input, a missing input, or one of another type or
                shape; more memory than the run may take; it was terminated.
        """
        given = input_feed if feeds is None else feeds
        found = self._run_carried(output_names, given, run_options)
        if not self._foreign:
            return found
        types = [self._foreign.get(name) for name in output_names or self.plan.outputs]
        return [
            array if type_ is None else array.astype(type_)
            for array, type_ in zip(found, types, strict=True)
        ]

    @_unlike_too
    def run_carried(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, npt.ArrayLike] | None = None,
        *,
        input_feed: Mapping[str, npt.ArrayLike] | None = None,
    ) -> list[Array]:
        """The outputs of the plan, each in the NumPy type that carries its elements: bf16 in f32, integers
        of 4 bits in 8.
        """
        return self._run_carried(output_names, input_feed if feeds is None else feeds)

    def _run_carried(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, npt.ArrayLike] | None,
        run_options: object = None,
    ) -> list[Array]:
        wanted = () if output_names is None else self._wanted(output_names)
        arrays = self._checked(feeds)
        run = self._executor.run
        if run_options is not None and hasattr(run_options, "terminate"):
            run = partial(run, behind=partial(_check_going_on, run_options))
        found = _within_memory(run, arrays)
        if not wanted:
            return found
        by_name = dict(zip(self.plan.outputs, found, strict=True))
        return [by_name[name] for name in wanted]

    @_unlike_too
    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Binds the session for inputs of these shapes: their first run then takes as long as any other.
        Threads may prepare while others run.

        Args:
            shapes: input -> its shape; inputs whose shape the model states may be left out.

        Raises:
            InvalidInput: the shapes do not fit the model, or need more memory than a run may take.
        """
        types = {name: type_.dtype.numpy for name, type_ in self._inputs.items()}
        stated = {
            name: type_.shape for name, type_ in self._inputs.items() if is_static(type_.shape)
        }
        given = {name: _sizes(name, shape) for name, shape in {**stated, **shapes}.items()}
        arrays = self._checked(
            {
                name: np.broadcast_to(np.zeros((), types.get(name, np.float32)), shape)
                for name, shape in given.items()
            }
        )
        _within_memory(self._executor.bind, {name: array.shape for name, array in arrays.items()})

    @_unlike_too
    def run_steps(self, feeds: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Every value that a step of the plan writes, by name, in execution order.

        Raises:
            InvalidInput: as `run`.
        """
        arrays = self._checked(feeds)
        return _within_memory(self._executor.run_all, arrays)

    @_unlike_too
    def profile(self, feeds: Mapping[str, npt.ArrayLike], runs: int = 20) -> Profile:
        """How long each step takes for these feeds, measured in runs of their own, in turns with
        plain ones; `run` is no slower for it.

        Args:
            feeds: as of `run`.
            runs: how many runs to time.

        Returns:
            Milliseconds of each step and of the whole run; `.as_dict()["steps"]` is a table for
            pandas.

        Raises:
            InvalidInput: as `run`; or no number of runs.
        """
        return measure(
            lambda: self.run(None, feeds),
            lambda: self._run_timed(feeds),
            self.placement,
            checked_runs(runs),
        )

    def _run_timed(self, feeds: Mapping[str, npt.ArrayLike]) -> StepTimes:
        arrays = self._checked(feeds)
        return _within_memory(self._executor.run_timed, arrays)

    def placement(self) -> tuple[Placement, ...]:
        """Where each step runs, and why: on oneDNN by which implementation, as a mere view, or on
        NumPy.

        Raises:
            InvalidInput: the model's shapes are symbolic, and nothing has been run yet.
        """
        if isinstance(self._executor, NumpyExecutor):
            return tuple(
                Placement(step, "numpy", reason=self.backend_reason) for step in self.plan.steps
            )
        return self._executor.placement()

    def memory(self) -> SessionMemory:
        """How many bytes the session holds of constants, and a run takes for values and
        scratchpads, step by step, for the shapes that were bound last: known before the first run
        where the model's shapes are.

        Raises:
            InvalidInput: the model's shapes are symbolic, and nothing has been run yet.
        """
        return self._executor.memory()

    def sums(self, isa: str = "avx2") -> tuple[StepSums, ...]:
        """Which int8 steps may give other numbers on a CPU with this instruction set, and in which
        output channels: proven from their weights and from the codes that their sources can hold.

        Args:
            isa: `vnni`, `avx512_core`, `avx2` or `sse41`.

        Raises:
            InvalidInput: no such instruction set.
        """
        check_isa(isa, "numpy", needed=True)
        return sums_of_plan(self.plan, isa)

    def __getstate__(self) -> dict[str, object]:
        # The plan as the bytes of its file: that form is stable and checked, and shares nothing
        # with this process.
        return {
            "plan": plan_bytes(self.plan),
            "backend": self._asked,
            "threads": self._threads,
            "run_bytes": self._run_bytes,
            "meta": self.get_modelmeta().state(),
            "isa": self._isa,
            "exact": self._exact,
        }

    def __setstate__(self, state: object) -> None:
        if (
            not isinstance(state, dict)
            or state.keys() != _STATE.keys()
            or not all(isinstance(state[name], kind) for name, kind in _STATE.items())
        ):
            raise InvalidInput(
                "this is not the state of a session", hint="pickle the session again"
            )
        plan, backend, threads = read_plan(state["plan"]), state["backend"], state["threads"]
        meta = meta_from_state(state["meta"])
        InferenceSession.__init__(
            self,
            plan,
            backend,
            threads,
            run_bytes=state["run_bytes"],
            isa=state["isa"],
            exact=state["exact"],
        )
        self._meta = meta

    # -- feeds -------------------------------------------------------------------------------------

    def _checked(self, feeds: Mapping[str, npt.ArrayLike] | None) -> dict[str, Array]:
        """The feeds as arrays of the right types and shapes."""
        if type(feeds) is not dict and not isinstance(feeds, Mapping):
            raise InvalidInput(
                f"the feeds are of type {type(feeds).__name__}",
                where=self.plan.name,
                hint="give a dictionary: {name: array}",
            )
        if feeds.keys() != self._inputs.keys():
            self._refuse_names(feeds)
        arrays = {}
        for name, exactly in self._exactly.items():
            fed = feeds[name]
            array = fed if type(fed) is np.ndarray else _array_of(name, fed, exactly[0])
            if (array.dtype, array.shape) != exactly:
                type_ = self._inputs[name]
                array = carried(name, array, type_.dtype)
                _check_feed(name, array, type_)
            arrays[name] = array
        for name in self._strings:
            _check_strings(name, arrays[name])
        if not self._static:
            symbol_sizes(self.plan, {name: array.shape for name, array in arrays.items()})
        return arrays

    def _wanted(self, output_names: object) -> tuple[str, ...]:
        """The names of outputs that a caller gave; none for all."""
        if isinstance(output_names, (str, bytes)) or not isinstance(
            output_names, (Sequence, AbstractSet)
        ):
            what = f"the names of outputs are of type {type(output_names).__name__}"
            raise InvalidInput(
                what, where=self.plan.name, hint="give a list of names, or None for all outputs"
            )
        names = tuple(output_names)
        unknown = [
            name for name in names if not isinstance(name, str) or name not in self.plan.outputs
        ]
        if unknown:
            hint = f"the model's outputs are: {_listed(self.plan.outputs)}"
            raise InvalidInput(
                f"unknown outputs: {_listed(unknown)}", where=self.plan.name, hint=hint
            )
        return names

    def _refuse_names(self, feeds: Mapping[str, object]) -> None:
        inputs, names = self.plan.inputs, _listed(self.plan.inputs)
        unknown = [name for name in feeds if name not in inputs]
        missing = [name for name in inputs if name not in feeds]
        wrong = [f"unknown inputs: {_listed(unknown)}"] if unknown else []
        wrong += [f"missing inputs: {_listed(missing)}"] if missing else []
        if wrong:
            raise InvalidInput(
                "; ".join(wrong),
                where=self.plan.name,
                hint=f"the model's inputs are: {names}",
            )


def _described(plan: Plan, names: Sequence[str]) -> list[NodeArg]:
    """Inputs or outputs, as ONNX Runtime describes them."""
    shapes = stated_shapes(plan, names)
    return [
        NodeArg(
            name,
            None if (shape := shapes[name]) is None else list(shape),
            type_name(plan.type(name).dtype),
        )
        for name in names
    ]


def _check_going_on(run_options: Any, _step: int) -> None:
    """Raises InvalidInput where a run is to end."""
    if run_options.terminate:
        raise InvalidInput(
            "the run was ended: terminate of its RunOptions is True",
            hint="set it to False before the next run",
        )


def _sizes(name: str, shape: object) -> tuple[int, ...]:
    """A shape that was given. Raises InvalidInput where it is none that an array can have."""
    if isinstance(shape, Sequence) and not isinstance(shape, (str, bytes)):
        plain = all(isinstance(size, (int, np.integer)) and 0 <= size < 1 << 31 for size in shape)
        if plain and len(shape) <= MOST_DIMENSIONS:
            return tuple(map(int, shape))
    raise InvalidInput(
        f"{shape!r:.200} is no shape",
        where=f"input {name}",
        hint="give a list of sizes: [1, 3, 32, 320]",
    )


def _array_of(name: str, fed: object, wanted: np.dtype[Any]) -> Array:
    """What was fed as an array: lists, numbers, and whatever offers itself as one (`__array__`,
    buffers). Lists of numbers are taken in the type that is wanted, where it has them.

    Raises:
        InvalidInput: it cannot be one, or would lose its mask.
    """
    if isinstance(fed, np.ma.MaskedArray):
        what = "the array is masked, and a model sees what is behind the mask"
        raise InvalidInput(what, where=f"input {name}", hint="fill it: array.filled(0)")
    try:
        array = np.asarray(fed)
    except Exception as error:  # the caller's own object is asked, and may raise anything
        what = f"a {type(fed).__name__} cannot be an array: {type(error).__name__}: {error}"
        raise InvalidInput(
            what, where=f"input {name}", hint="feed a numpy.ndarray: numpy.asarray(values, type)"
        ) from error
    if isinstance(fed, list | tuple) and {array.dtype.kind, wanted.kind} <= set("biuf"):
        with np.errstate(all="ignore"):
            values = array.astype(wanted)
        kept = np.isfinite(values) == np.isfinite(array) if wanted.kind == "f" else values == array
        return values if kept.all() else array
    return array


def _check_strings(name: str, array: Array) -> None:
    if array.dtype.kind == "O" and not all(isinstance(text, str) for text in array.flat):
        raise InvalidInput(
            f"input {name} has elements that are no str",
            where=f"input {name}",
            hint="decode bytes, and convert the others",
        )


def _check_feed(name: str, array: Array, type_: TensorType) -> None:
    wanted = type_.dtype.numpy
    if array.dtype != wanted and not (type_.dtype is DType.STRING and array.dtype.kind in "UO"):
        raise InvalidInput(
            f"input {name} has elements of type {array.dtype}, expected {called(type_.dtype)}",
            where=f"input {name}: {type_}",
            hint=conversion_of(array, type_.dtype),
        )
    if type_.shape is None:
        return
    if array.ndim != len(type_.shape):
        raise InvalidInput(
            f"input {name} has {dimensions(array.ndim)} {list(array.shape)}, expected {len(type_.shape)}",
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


def _listed(names: Sequence[object]) -> str:
    return ", ".join(name if isinstance(name, str) else repr(name) for name in names) or "none"


def _within_memory(work: Callable[[Mapping[str, T]], R], given: Mapping[str, T]) -> R:
    """What `work` returns; raises InvalidInput where memory runs out."""
    try:
        return work(given)
    except MemoryError as error:
        what = f"there is not enough memory for this run: {error}".rstrip(": ")
        raise InvalidInput(what, hint="feed smaller inputs, or use a larger machine") from error


def check_backend(backend: object) -> None:
    """Refuses what is no name of a backend.

    Raises:
        InvalidInput: there is none of this name.
    """
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise InvalidInput(f"no backend {backend!r}", hint=f"choose one of: {', '.join(BACKENDS)}")


def checked_threads(threads: int | None) -> int:
    """How many threads a caller asks for; one for each processor for None.

    Raises:
        InvalidInput: no such number.
    """
    if threads is None:
        return default_threads()
    try:
        count = operator.index(threads)
    except TypeError:
        count = 0
    if not 1 <= count <= max(_MOST_THREADS, default_threads()):
        what = (
            f"threads must be an integer from 1 to {_MOST_THREADS}, found {count or repr(threads)}"
        )
        raise InvalidInput(what, hint="leave it out for one thread a processor")
    return count


def _executor(
    plan: Plan, backend: str, threads: int, budget: RunBudget, isa: str | None, *, exact: bool
) -> tuple[NumpyExecutor | OneDnnExecutor, str, str]:
    """The executor, its name, and why it is this one."""
    if isa is not None:
        emulated = NumpyExecutor(plan, threads, PROFILES[isa], budget=budget)
        return emulated, "numpy", f"NumPy emulates {PROFILES[isa].name}"
    if backend == "numpy":
        return (
            NumpyExecutor(plan, threads, budget=budget),
            "numpy",
            "the backend numpy was asked for",
        )
    # Imported here: loading the library takes time that the NumPy runtime need not spend.
    from .lowering.executor import OneDnnExecutor

    try:
        executor = OneDnnExecutor(plan, threads, exact=exact, budget=budget)
    except BackendUnavailable as error:
        if backend == "onednn":
            raise
        return (
            NumpyExecutor(plan, threads, budget=budget),
            "numpy",
            f"oneDNN cannot be used: {error.what}",
        )
    return executor, "onednn", executor.description
