"""What ONNX Runtime's Python API has, so that code switches to fqfuse by another import: how a
session describes its model, and which of the options for ONNX Runtime mean something here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NoReturn, TypeVar

from ..errors import InvalidInput, printable
from ..ir.types import DType
from ..plan.open_sizes import checked_size

CPU = "CPUExecutionProvider"
"""Who runs a session, in ONNX Runtime's words."""

_PROVIDER = "ExecutionProvider"

_TYPES = {  # where it is not NumPy's name of what carries the elements
    DType.F32: "float",
    DType.F64: "double",
    DType.BF16: "bfloat16",
    DType.F8E4M3FN: "float8e4m3fn",
    DType.F8E4M3FNUZ: "float8e4m3fnuz",
    DType.F8E5M2: "float8e5m2",
    DType.F8E5M2FNUZ: "float8e5m2fnuz",
    DType.F8E8M0: "float8e8m0",
    DType.F4E2M1: "float4e2m1",
    DType.S2: "int2",
    DType.U2: "uint2",
    DType.S4: "int4",
    DType.U4: "uint4",
    DType.STRING: "string",
}


@dataclass(frozen=True)
class NodeArg:
    """An input or output of the model, as ONNX Runtime describes it.

    Attributes:
        name: its name in the model.
        shape: sizes, names of sizes that are known at run time only, and None for those without a
            name; None when even the rank is unknown.
        type: `tensor(float)`, `tensor(uint8)` ...
    """

    name: str
    shape: list[int | str | None] | None
    type: str


def type_name(dtype: DType) -> str:
    """The type of a tensor with such elements."""
    return f"tensor({_TYPES.get(dtype, dtype.numpy.name)})"


@dataclass(frozen=True)
class ModelMeta:
    """What the file says about the model, as ONNX Runtime's `get_modelmeta` has it. A plan keeps
    the name of the graph only.
    """

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)

    def state(self) -> dict[str, object]:
        """Plain data, for `meta_from_state`."""
        return asdict(self)


def meta_from_state(state: Mapping[str, object]) -> ModelMeta:
    """What `ModelMeta.state` was made of.

    Raises:
        InvalidInput: it was made of something else.
    """
    plain = ModelMeta().state()
    custom = state.get("custom_metadata_map")
    if (
        state.keys() != plain.keys()
        or any(not isinstance(state[name], type(value)) for name, value in plain.items())
        or not isinstance(custom, dict)
        or not all(isinstance(text, str) for pair in custom.items() for text in pair)
    ):
        raise InvalidInput("this is not the state of a session", hint="pickle the session again")
    return ModelMeta(**state)  # type: ignore[arg-type]  # checked above


_DEVICES = "there is one device, the CPU, and one allocator: leave the call out"
_TIMES = "session.profile(feeds) tells the time of each step, in runs of their own"
_INSIDE = "put the data into the model: onnx.external_data_helper.load_external_data_for_model"
_CONTEXT = "there are no models compiled for a device: leave the call out"
_C = TypeVar("_C")


def without(**absent: str) -> Callable[[type[_C]], type[_C]]:
    """Gives a class the methods of ONNX Runtime that it does not have: each says what to do instead."""

    def given(owner: type[_C]) -> type[_C]:
        for name, instead in absent.items():
            setattr(owner, name, _absent(name, instead))
        return owner

    return given


def _absent(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise InvalidInput(f"fqfuse has no {name}()", hint=instead)

    refuse.__name__ = name
    refuse.__doc__ = f"Not here: {instead}."
    return refuse


@without(
    add_initializer=_INSIDE,
    add_external_initializers=_INSIDE,
    add_external_initializers_from_files_in_memory=_INSIDE,
    add_provider="InferenceSession(..., providers=[...]) takes providers",
    add_provider_for_devices=_DEVICES,
    set_provider_selection_policy=_DEVICES,
    set_provider_selection_policy_delegate=_DEVICES,
    set_ep_context_data_read_func=_CONTEXT,
    clear_ep_context_data_read_func=_CONTEXT,
    register_custom_ops_library="a model with operators of your own runs in onnxruntime alone",
    set_load_cancellation_flag="make the session in a process that can be ended",
)
class SessionOptions:
    """Options of a session, in the place of `onnxruntime.SessionOptions`, which may be given as
    well. Any attribute may be set; `intra_op_num_threads` and overrides of free dimensions count.

    Attributes:
        intra_op_num_threads: how many threads a run may use; 0: one for each processor.
        named, denoted: sizes for dimensions that a model leaves open, by their name or denotation.
    """

    enable_cpu_mem_arena = enable_mem_pattern = enable_mem_reuse = use_per_session_threads = True
    enable_profiling = use_deterministic_compute = False
    execution_mode = execution_order = inter_op_num_threads = log_verbosity_level = 0
    graph_optimization_level, log_severity_level = 99, -1
    logid = optimized_model_filepath = ""
    profile_file_prefix = "onnxruntime_profile_"

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.named: dict[str, int] = {}
        self.denoted: dict[str, int] = {}
        self._entries: dict[str, str] = {}

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """The model is compiled for one size of the dimensions of inputs that have this name.

        Raises:
            InvalidInput: it is no size.
        """
        self.named.setdefault(name, checked_size(name, size))  # the first one counts

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """The same of dimensions with this denotation, such as `DATA_BATCH`.

        Raises:
            InvalidInput: it is no size.
        """
        self.denoted.setdefault(denotation.lower(), checked_size(denotation, size))

    def has_providers(self) -> bool:
        """False: a session takes them."""
        return False

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry; none means anything here."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """The entry (KeyError when there is none)."""
        return self._entries[key]


@without(
    run_with_ortvaluevector="session.run_with_ort_values(None, {name: value}) takes the same values",
    create_ortvalue_from_shape_and_type="fqfuse.OrtValue.ortvalue_from_shape_and_type(shape, type)",
    run_async="a session may be used by many threads at once: "
    "concurrent.futures.ThreadPoolExecutor().submit(session.run, None, feeds)",
    end_profiling=_TIMES,
    get_profiling_start_time_ns=_TIMES,
    get_tuning_results=_DEVICES,
    set_tuning_results=_DEVICES,
    set_ep_dynamic_options=_DEVICES,
    release_captured_graph=_DEVICES,
    get_input_epdevices=_DEVICES,
    get_input_memory_infos=_DEVICES,
    get_output_memory_infos=_DEVICES,
    get_provider_graph_assignment_info="session.placement() tells where each step runs",
)
class OnnxRuntimeMethods:
    """What ONNX Runtime's session can be asked besides: what has a meaning on a CPU answers, the
    rest says what to do instead.
    """

    threads: int

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Options of execution providers: there are none."""
        _ = self.threads  # of a closed session this says so
        return {CPU: {}}

    def set_providers(
        self,
        providers: Sequence[object] | None = None,
        provider_options: Sequence[Mapping[str, object]] | None = None,
    ) -> None:
        """Looks at execution providers, as the session did when it was made: it runs on the CPU.

        Raises:
            InvalidInput: they are none.
        """
        _ = self.threads
        check_providers(providers, provider_options)

    def get_session_options(self) -> SessionOptions:
        """Options with which another session has as many threads."""
        options = SessionOptions()
        options.intra_op_num_threads = self.threads
        return options

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that a run may replace: none, because they were compiled in."""
        _ = self.threads
        return []

    def enable_fallback(self) -> None:
        """Nothing: there is no execution provider to fall back from."""

    def disable_fallback(self) -> None:
        """Nothing: there is no execution provider to fall back from."""


def threads_of(options: object) -> int | None:
    """How many threads options for ONNX Runtime ask for; None: as many as there are processors.

    Warns of what was asked for and is not done.

    Raises:
        InvalidInput: these are no options of a session.
    """
    count = getattr(options, "intra_op_num_threads", None)
    if not isinstance(count, int):
        raise InvalidInput(
            f"a {type(options).__name__} is no options of a session",
            hint="give fqfuse.SessionOptions(), or those of onnxruntime; or backend=, threads=",
        )
    if getattr(options, "enable_profiling", False):
        _warn("enable_profiling does nothing: session.profile(feeds) tells the time of each step")
    if getattr(options, "optimized_model_filepath", ""):
        _warn("optimized_model_filepath does nothing: fqfuse.save_plan(plan, path) writes the plan")
    return count or None


def check_providers(providers: object, provider_options: object) -> None:
    """Looks at execution providers: a session runs on the CPU, whatever they are; warns where that
    was not asked for.

    Raises:
        InvalidInput: they are none.
    """
    if isinstance(providers, str) or not isinstance(providers, Sequence | None):
        raise InvalidInput("the providers are no list", hint=f'give providers=["{CPU}"]')
    if not isinstance(provider_options, Sequence | None) or isinstance(provider_options, str):
        raise InvalidInput("the options of providers are no list", hint="leave them out")
    names = [one[0] if isinstance(one, tuple) and one else one for one in providers or ()]
    for name in names:
        if not isinstance(name, str) or not name.endswith(_PROVIDER):
            raise InvalidInput(
                f"{name!r} is no execution provider",
                hint=f'give providers=["{CPU}"], or leave them out; backend= chooses the runtime',
            )
    others = [name for name in names if name != CPU]
    if others:
        _warn(f"there is no {', '.join(others)} here: the session runs on the CPU ({CPU})")


def _warn(text: str) -> None:
    # behind this: check_providers or threads_of, the session's __init__, who makes the session
    warnings.warn(printable(text), UserWarning, stacklevel=4)
