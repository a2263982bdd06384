"""`prim`: one primitive, made for shapes, types and attributes, and executed as often as wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from ..errors import InvalidInput
from ..ir.ops.spec import Array
from ..ir.types import DType
from ..onednn import workers
from ..onednn.capi import Status, failure
from ..onednn.enums import FpmathMode, ScratchpadMode
from ..onednn.library import Engine, Library, Stream
from ..onednn.loading import load
from ..plan.attributes import PrimitiveAttr
from ..plan.summation import summation
from ..runtime.numerics import PROFILES, check_isa
from ..runtime.processors import default_threads
from . import on_library, on_numpy, recurrent_on_numpy
from .description import (
    Description,
    at_execution,
    described,
    placeholders,
    stray_masks,
    with_values,
)
from .kinds import CELLS
from .narrowing import in_environment, mode_of
from .neglected import neglected
from .on_library import Made
from .recurrent import of_library
from .refusal import malformed, refusal
from .schemes import (
    SCHEME,
    converted,
    in_own_terms,
    in_words_of_3_2,
    with_known_parameters,
)
from .untold import check_untold

ENGINES = ("numpy", "onednn")
_PLAIN = PrimitiveAttr()
T = TypeVar("T")
_NO_ARGS: Mapping[str, Array] = MappingProxyType({})


def prim(
    kind: str,
    attr: PrimitiveAttr = _PLAIN,
    *,
    engine: str = "numpy",
    target: str = "onednn-v3",
    scratchpad: str = "library",
    fpmath: str = "strict",
    isa: str | None = None,
    **given: Any,
) -> Primitive:
    """A primitive.

    Args:
        kind: `convolution`, `matmul` and so on: `kinds.py`.
        attr: its attributes, which are copied. A `Scale` or `ZeroPoint` without values is given at
            execution, as `scales_src`, `zero_points_dst` and so on.
        engine: `numpy` or `onednn`.
        target: the scheme of the attributes: `onednn-v3`, `onednn-v2` or `unified`.
        scratchpad: who allocates what the library needs while it runs: `library` or `user`.
        fpmath: what f32 may be narrowed to inside: `strict`, `bf16`, `f16`, `tf32`, `any`, or
            `environment`, the default that ONEDNN_DEFAULT_FPMATH_MODE says. NumPy narrows the
            factors of products, the library where the CPU has code for it (`narrowing.py`).
        isa: NumPy gives what oneDNN 3.2 gives on a CPU whose newest instruction set this is:
            `vnni`, `avx512_core`, `avx2` or `sse41` (docs/contributing/isa.md); None: exact sums, those of
            `vnni`. What is refused stays the same.
        given: arguments and operands of post-ops as texts (`src="u8[1,16,8,8]"`), and parameters.

    Raises:
        OneDnnError: the library refuses it; on NumPy, it contradicts itself, or the target does not
            have it. `status` says which.
        InvalidInput: there is no such kind, argument, parameter or option.
        BackendUnavailable: there is no library.
    """
    if engine not in ENGINES:
        raise InvalidInput(f"there is no engine {engine!r}", hint="choose numpy or onednn")
    check_isa(isa, engine)
    mode = mode_of(fpmath)
    users = _mode(ScratchpadMode, scratchpad) is ScratchpadMode.user
    description = with_known_parameters(described(kind, given, attr, target))
    for reason in stray_masks(description):
        _refuse(description, (Status.invalid_arguments, reason))
    if engine == "numpy":
        return OnNumpy(description, in_environment() if mode is None else mode, isa or "vnni")
    return OnLibrary(description, mode, users=users)


def _check_taken(description: Description) -> None:
    """Refuses what NumPy does not make; and of another scheme than the library's what no engine does.

    Raises:
        OneDnnError: it is such a primitive.
        InvalidInput: parameters are of another type or size than the library's.
    """
    asked = in_own_terms(description)
    if asked.target == SCHEME and asked.kind not in CELLS and not any(malformed(asked)):
        check_untold(asked)
    _refuse(description, refusal(asked))
    if asked.target != "unified":
        _check_neglected(description, in_words_of_3_2(asked))


def _check_neglected(description: Description, asked: Description) -> None:
    """Refuses what the library makes, and neglects a part of; `asked`: in its own words.

    Raises:
        OneDnnError: there is such a part.
    """
    lost = neglected(asked)
    if lost is not None:
        told = f"{description}, of which oneDNN makes one although {lost},"
        raise failure(Status.unimplemented, told)


def _check_bf16(name: str, array: Array) -> None:
    """Refuses numbers that bf16, which f32 carries, does not hold.

    Raises:
        InvalidInput: there are some.
    """
    bits = np.ascontiguousarray(array).view(np.uint32)
    if (bits[~np.isnan(array)] & 0xFFFF).any():
        raise InvalidInput(
            f"{name} has numbers that bf16 does not hold", hint="round them to bf16 first"
        )


def _refuse(description: Description, found: tuple[Status, str] | None) -> None:
    """Raises what was found as the library's error."""
    if found is not None:
        status, reason = found
        raise failure(status, f"{description}, where {reason},")


def _mode(kind: Any, name: str) -> Any:
    if name not in kind.__members__:
        raise InvalidInput(
            f"there is no mode {name!r}", hint=f"choose of {', '.join(kind.__members__)}"
        )
    return kind[name]


class Primitive:
    """A primitive that was made.

    Args:
        description: what it is.

    Attributes:
        description: the same.
        impl_info: the name of its implementation.
        passed_over: implementations that the library would take, and why they were not taken.
        scratchpad_size: bytes that `execute` must be given as `scratchpad`; 0: none.
        memory_consumption: bytes that the library allocates for it besides its arguments.
    """

    impl_info = "numpy"
    passed_over: tuple[str, ...] = ()
    scratchpad_size = 0
    memory_consumption = 0

    def __init__(self, description: Description) -> None:
        self.description = description

    def execute(self, args: Mapping[str, Array] = _NO_ARGS) -> Array:
        """The destination, a new array; of a primitive that has one.

        Args:
            args: an array for each argument but destinations, each operand of post-ops, and the
                values of scales and zero points that the attributes have none of.

        Raises:
            InvalidInput: one is missing, or not of the shape and type that the primitive was made
                for; or it writes several destinations.
        """
        written = self.description.destinations()
        if len(written) > 1:
            raise InvalidInput(
                f"{self.description.kind} writes {', '.join(written)}",
                hint="call execute_all, which returns all of them",
            )
        return self.execute_all(args)[written[0]]

    def execute_all(self, args: Mapping[str, Array] = _NO_ARGS) -> dict[str, Array]:
        """The destinations by role, new arrays: `dst`, or of a recurrent layer `dst_layer`, and
        `dst_iter` and `dst_iter_c` where it was made with them. Arguments and errors as of
        `execute`.
        """
        arrays = self._checked(args)
        return self._run(with_values(self.description, arrays), arrays)

    def _run(self, attr: PrimitiveAttr, args: Mapping[str, Array]) -> dict[str, Array]:
        raise NotImplementedError

    def _checked(self, args: Mapping[str, Array]) -> dict[str, Array]:
        what = self.description
        wanted = {
            **{
                role: (type_.static_shape, type_.dtype.numpy)
                for role, type_ in what.tensors.items()
            },
            **{
                name: (type_.static_shape, type_.dtype.numpy)
                for name, type_ in what.operands.items()
            },
        }
        for role in what.destinations():
            del wanted[role]
        wanted |= {name: ((count,), np.dtype(dtype)) for name, count, dtype in at_execution(what)}
        if self.scratchpad_size:
            wanted["scratchpad"] = (self.scratchpad_size,), np.dtype(np.uint8)
        stray = sorted(args.keys() - wanted.keys() - {"scratchpad"})
        if stray:
            raise InvalidInput(
                f"{what.kind} reads no {stray[0]!r}", hint=f"it reads {', '.join(wanted)}"
            )
        found = {}
        for name, (shape, dtype) in wanted.items():
            if name not in args:
                raise InvalidInput(
                    f"{what.kind} lacks {name}, {dtype}{list(shape)}", hint="pass it to execute"
                )
            array = np.asarray(args[name])
            if array.dtype != dtype or array.shape not in (shape, () if shape == (1,) else shape):
                raise InvalidInput(
                    f"{name} is {array.dtype}{list(array.shape)}, and {what.kind} wants {dtype}{list(shape)}",
                    hint="convert it, or make the primitive for its type and shape",
                )
            found[name] = array.reshape(shape)
        for name, type_ in {**what.tensors, **what.operands}.items():
            if name in found and type_.dtype is DType.BF16:
                _check_bf16(name, found[name])
        return found

    def __repr__(self) -> str:
        return f"<{self.description} by {self.impl_info}>"


class OnNumpy(Primitive):
    """A primitive that the NumPy kernels run; `fpmath`: what it narrows f32 to; `isa`: the CPU whose
    sums it gives.

    Raises:
        OneDnnError: it contradicts itself, or the target does not have it.
        InvalidInput: parameters are of another type or size than the library's.
    """

    def __init__(self, description: Description, fpmath: FpmathMode, isa: str) -> None:
        _check_taken(description)
        super().__init__(description)
        self._fpmath = fpmath
        self._profile = PROFILES[isa]

    def _run(self, attr: PrimitiveAttr, args: Mapping[str, Array]) -> dict[str, Array]:
        what = self.description
        if what.kind in CELLS:
            law = summation(self._profile.isa, "rnn", signed=False)
            return recurrent_on_numpy.run(of_library(what, attr), args, law)
        return {"dst": on_numpy.run(what, attr, args, self._profile, self._fpmath)}


@dataclass(frozen=True, eq=False)
class _Bound:
    """A primitive of the library, with the stream of its engine, and the form that it was made for."""

    stream: Stream
    made: Made
    form: Description


class OnLibrary(Primitive):
    """A primitive of the library.

    Raises:
        OneDnnError: the library refuses it, or has no words for it.
        BackendUnavailable: there is no library.
    """

    def __init__(self, description: Description, fpmath: FpmathMode | None, *, users: bool) -> None:
        super().__init__(description)
        self._library, self._fpmath, self._users = load(), fpmath, users
        what = description
        if description.target != SCHEME:
            _check_taken(description)
            args = placeholders(description)
            what, _, _ = converted(description, with_values(description, args), args)
        self._bound = self._make(what)
        made = self._bound.made
        self.passed_over, self.impl_info = made.passed_over, made.primitive.desc.impl_info
        if users:
            self.scratchpad_size = made.primitive.desc.scratchpad_size
        else:
            self.memory_consumption = made.memory_consumption

    def _make(self, what: Description) -> _Bound:
        if not on_library.can_be_asked_for(what):
            _refuse(self.description, refusal(what))

        def make() -> _Bound:
            with workers.making():
                stream = Stream(Engine(self._library))
                made = on_library.made(stream.engine, what, self._fpmath)
                return _Bound(stream, made, on_library.form(what))

        # in a thread of its own: in one that failed to generate code once, the library fails later
        found = workers.in_new_thread(lambda: _called(self._library, make))
        if self.description.target == SCHEME and what.kind not in CELLS:
            check_untold(what)
        _check_neglected(self.description, what)
        return found

    def _bound_to(self, what: Description) -> _Bound:
        """The primitive of this run: of another scheme, a value that comes at execution may be one that
        the library wants when it makes a primitive, such as the factor of a post-op.

        Raises:
            InvalidInput: it needs a larger scratchpad than the user was told.
        """
        bound = self._bound
        if bound.form != on_library.form(what):
            bound = self._bound = self._make(what)
        needed = bound.made.primitive.desc.scratchpad_size
        if self._users and needed > self.scratchpad_size:
            raise InvalidInput(
                f"with these values {what.kind} needs a scratchpad of {needed} bytes, not {self.scratchpad_size}",
                hint="give scales and zero points when the primitive is made, or let the library allocate",
            )
        return bound

    def _run(self, attr: PrimitiveAttr, args: Mapping[str, Array]) -> dict[str, Array]:
        what, bound = self.description, self._bound
        if what.target != SCHEME:
            what, attr, args = converted(what, attr, args)
            bound = self._bound_to(what)

        def run() -> dict[str, Array]:
            return on_library.execute(bound.stream, what, bound.made.primitive, attr, args)

        return _called(self._library, run)


def _called(library: Library, work: Callable[[], T]) -> T:
    """Calls `work` with our number of OpenMP threads; they belong to the calling thread, who may
    want its own back.
    """

    def call() -> T:
        before = library.max_threads()
        library.set_threads(default_threads())
        try:
            return work()
        finally:
            library.set_threads(before)

    if not workers.in_child():
        return call()
    library.check_process()
    return workers.in_own_thread(call)
