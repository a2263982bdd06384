"""Sessions over plans and models alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, Literal, Protocol

from .errors import InvalidInput
from .frontend import DEFAULT, Budgets, ModelSource, Source, check_budgets, read_model
from .plan.file import read_plan
from .plan.open_sizes import shares_sizes
from .plan.seal import is_plan
from .plan.text import print_plan
from .plan.types import Plan
from .plan_cache import cached
from .runtime.like_onnxruntime import ModelMeta, OnnxRuntimeMethods, check_providers, threads_of
from .runtime.numerics import check_isa
from .runtime.ort_values import ValueMethods
from .runtime.session import InferenceSession as PlanSession
from .runtime.session import check_backend

Provider = str | tuple[str, Mapping[str, Any]]


class Options(Protocol):
    """`fqfuse.SessionOptions`, `onnxruntime.SessionOptions`, or whatever has this attribute."""

    intra_op_num_threads: int


class InferenceSession(OnnxRuntimeMethods, ValueMethods, PlanSession):
    """Runs a plan or model; made and used as ONNX Runtime's session, too (docs/onnxruntime.md).

    Args:
        model: a Plan, a plan file, or an ONNX model (path, bytes, another buffer, or
            `onnx.ModelProto`), which is compiled for the default target first.
        backend: `numpy`, `onednn`, or `auto`: oneDNN where it is installed, NumPy otherwise. Both give
            exact products of codes on every CPU. In this place ONNX Runtime has `sess_options`, which are taken as well.
        threads: how many threads a run may use; None: as `sess_options` say, or as many as the
            process may run on. In this place ONNX Runtime has `providers`, which are taken as well.
        provider_options: looked at by nothing.
        sess_options: options for ONNX Runtime: their `intra_op_num_threads` counts, and of
            `fqfuse.SessionOptions` overrides of free dimensions.
        providers: execution providers of ONNX Runtime; a warning says where the CPU takes the place
            of another.
        path_or_bytes: ONNX Runtime's name for `model`.
        disabled_optimizers: of ONNX Runtime: looked at by nothing.
        enable_fallback: the same.
        budgets: limits on what the model may ask for, `run_bytes` on what a run may.
        isa: what oneDNN 3.2 would answer on a CPU with this instruction set, emulated on NumPy:
            `vnni`, `avx512_core`, `avx2` or `sse41` (None: exact products; docs/contributing/isa.md).
        exact: False: on a CPU without VNNI, take oneDNN's own int8 kernels. Their sums saturate there,
            as those of other runtimes do: faster, and possibly wrong.
        cache: a folder of your own that keeps the plans of models: a second start compiles nothing
            (docs/python.md). None: as the environment variable FQFUSE_CACHE says, else none.

    Raises:
        FqfuseError: what `compile` or `load_plan` raise, or BackendUnavailable.
    """

    def __init__(
        self,
        model: Plan | ModelSource | bytearray | memoryview | None = None,
        backend: Literal["auto", "numpy", "onednn"] | Options | None = "auto",
        threads: int | Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        sess_options: Options | None = None,
        providers: Sequence[Provider] | None = None,
        path_or_bytes: ModelSource | bytearray | memoryview | None = None,
        disabled_optimizers: Sequence[str] | None = None,
        enable_fallback: int = 1,
        budgets: Budgets = DEFAULT,
        isa: Literal["vnni", "avx512_core", "avx2", "sse41"] | None = None,
        exact: bool = True,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        del disabled_optimizers, enable_fallback
        given = _only(model, path_or_bytes, "model", "path_or_bytes")
        if isinstance(threads, list | tuple):
            providers, threads = _only(threads, providers, "threads", "providers"), None
        if not isinstance(backend, str):
            sess_options = _only(backend, sess_options, "backend", "sess_options")
            backend = "auto"
        check_backend(backend)
        check_isa(isa, backend)
        check_providers(providers, provider_options)
        asked = None if sess_options is None else threads_of(sess_options)
        if isinstance(given, (bytearray, memoryview)):
            given = bytes(given)
        plan, meta, apart = _read(given, budgets, sess_options, cache)
        count: Any = asked if threads is None else threads
        super().__init__(
            plan, backend, count, run_bytes=budgets.run_bytes, isa=isa, exact=exact, apart=apart
        )
        self._meta = meta


def plan_of(model: Plan | ModelSource, budgets: Budgets = DEFAULT) -> Plan:
    """The plan itself, that in a file or bytes, or of a model, which is compiled.

    Raises:
        FqfuseError: what `compile` or `load_plan` raise.
    """
    return _read(model, budgets)[0]


def _read(
    model: Any,
    budgets: Budgets,
    options: object = None,
    cache: str | PathLike[str] | None = None,
) -> tuple[Plan, ModelMeta | None, Callable[[], Plan] | None]:
    """The plan; what the file of a model says about it; and what compiles it again, with the sizes of inputs apart."""
    check_budgets(budgets)
    named, denoted = getattr(options, "named", {}), getattr(options, "denoted", {})
    is_file = isinstance(model, (str, PathLike, bytes)) and is_plan(model)
    if isinstance(model, Plan) or is_file:
        if named or denoted:
            raise InvalidInput(
                "a plan has the sizes that it was compiled with, and takes no overrides of free dimensions",
                hint="give the model in place of the plan",
            )
        return (model if isinstance(model, Plan) else read_plan(model)), None, None

    def read() -> Source:
        return replace(read_model(model, budgets), named=named, denoted=denoted)

    source = read()

    def compiled() -> Plan:
        # here: a start from a cache needs none of it
        from .compiler import compile as compile_model

        return compile_model(source, budgets=budgets)

    plan = cached(cache, source, compiled, budgets=budgets)
    apart = partial(plan_apart, read, plan, budgets=budgets) if shares_sizes(plan) else None
    return plan, _meta_of(source), apart


def plan_apart(read: Callable[[], Source], plan: Plan, **settings: Any) -> Plan:
    """The plan of the same model in which dimensions of inputs that share a name are sizes of their own.

    Args:
        read: reads the model, which may have changed since.
        plan: its plan.
        settings: with which it was compiled.

    Raises:
        InvalidInput: the model is another one now.
    """
    # here: a start from a cache needs none of it
    from .compiler import compile as compile_model

    again = compile_model(read(), **settings)
    if print_plan(again, data="digest") != print_plan(plan, data="digest"):
        raise InvalidInput(
            "the model has changed since the session was made, and has to be compiled again for sizes of "
            "one name that are fed unlike",
            where=plan.name,
            hint="make a new session",
        )
    return compile_model(replace(read(), apart=True), **settings)


def _meta_of(source: Source) -> ModelMeta:
    model = source.model
    return ModelMeta(
        producer_name=model.producer_name,
        graph_name=model.graph.name,
        domain=model.domain,
        description=model.doc_string,
        graph_description=model.graph.doc_string,
        version=model.model_version,
        custom_metadata_map={entry.key: entry.value for entry in model.metadata_props},
    )


def _only(one: Any, other: Any, name: str, other_name: str) -> Any:
    """The one of two arguments for the same thing that was given."""
    if one is not None and other is not None:
        raise InvalidInput(
            f"{name} and {other_name} say the same thing twice", hint="leave one of them out"
        )
    return other if one is None else one
