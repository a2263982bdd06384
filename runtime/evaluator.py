"""Operators in the place of those of ONNX's evaluator (onnx 1.23) that give other numbers than ONNX says, or take
a step of Python for each element.

`runtime/fallback.py` gives them to the evaluator; the names of classes and arguments are the evaluator's.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_grid_sample import GridSample as _ReferenceGridSample
from onnx.reference.ops.op_loop import Loop as _ReferenceLoop
from onnx.reference.ops.op_max_pool import MaxPool as _ReferenceMaxPool
from onnx.reference.ops.op_scatter_elements import ScatterElements as _ReferenceScatterElements
from onnx.reference.ops.op_scatternd import ScatterND as _ReferenceScatterND
from onnx.reference.ops.op_tile import Tile as _ReferenceTile

from ..ir.element_types import DTYPES, ELEMENT_TYPES
from ..ir.ops import OPS
from ..ir.ops.movement import tiled
from ..ir.ops.resize import cubic_weights
from ..ir.ops.rows import A
from ..ir.ops.windows import pad_spatial, window
from ..ir.types import DType

_REDUCTIONS: Final[dict[str, Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
_CUBIC: Final = -0.75  # ONNX's coefficient of GridSample

trips = threading.local()
"""`trips.left`: how many trips the loops of this run may still take, of `trips.most`."""


class Loop(_ReferenceLoop):
    """Loop as ONNX defines it: an absent condition is true, and the rows of a scan output are
    stacked along a new first axis.

    The evaluator's own (onnx 1.23) takes an absent condition for false and joins rows of two and
    more dimensions end to end.
    """

    op_domain = ""

    def _run(
        self,
        M: Any,  # noqa: N803  # the names are the evaluator's
        cond: Any,
        *args: Any,
        context: Any = None,
        body: Any = None,  # noqa: ARG002
        **more: Any,
    ) -> tuple[Any, ...]:
        own: Any = self  # the evaluator gives a node its subgraphs as attributes
        names, carried = own.body.input_names, own.N
        state, rows = list(args), []
        going, step = cond is None or bool(cond), 0
        while going and (M is None or step < int(M)):
            trips.left -= 1
            if trips.left < 0:
                raise RuntimeError(f"it takes more than {trips.most} trips")
            counters = {names[0]: np.asarray(step, np.int64), names[1]: np.asarray(going)}
            feeds = {**(context or {}), **counters, **dict(zip(names[2:], state, strict=True))}
            results = own._run_body(feeds, **more)  # noqa: SLF001  (`own` is this node)
            going, state = bool(results[0]), list(results[1 : 1 + carried])
            rows.append(results[1 + carried :])
            step += 1
        declared = own.body.proto_.output[1 + carried :]
        stacked = [
            np.stack([row[k] for row in rows]) if rows else _no_rows(value)
            for k, value in enumerate(declared)
        ]
        return (*state, *stacked)


class SequenceMap(OpRun):
    """SequenceMap whose body reads values of the graph around it, which the evaluator's own does not find."""

    op_domain = ""

    def need_context(self) -> bool:
        """True: the body reads what is around it."""
        return True

    def _run(
        self,
        *given: Any,
        context: Any = None,
        body: Any = None,  # noqa: ARG002
        **more: Any,
    ) -> tuple[Any, ...]:
        own: Any = self
        counts = {len(each) for each in given if isinstance(each, list)}
        if len(counts) != 1:
            raise ValueError(f"sequences of {', '.join(map(str, sorted(counts)))} tensors")
        made = []
        for place in range(*counts):
            each = [value[place] if isinstance(value, list) else value for value in given]
            feeds = {**(context or {}), **dict(zip(own.body.input_names, each, strict=True))}
            made.append(own._run_body(feeds, **more))  # noqa: SLF001  (`own` is this node)
        return tuple([row[k] for row in made] for k in range(len(self.output)))


class SequenceAt(OpRun):
    """SequenceAt whose place may be a list of one."""

    op_domain = ""

    def _run(self, given: list[A], place: A) -> tuple[A]:
        return (given[int(place.item())],)


class SequenceInsert(OpRun):
    """SequenceInsert at the place that ONNX says; the evaluator's own takes that behind the last tensor for the
    first one, and places that there are not.
    """

    op_domain = ""

    def _run(self, given: list[A], tensor: A, place: A | None = None) -> tuple[list[A]]:
        count = len(given)
        at = count if place is None else int(place.item())
        if not -count <= at <= count:
            raise IndexError(f"a sequence of {count} has no place {at}")
        at %= max(count, 1) if at < count else count + 1
        return ([*given[:at], tensor, *given[at:]],)


class SplitToSequence(OpRun):
    """SplitToSequence into sizes that add up; the evaluator's own takes any."""

    op_domain = ""

    def _run(
        self, x: A, sizes: A | None = None, axis: int | None = None, keepdims: int | None = None
    ) -> tuple[list[A]]:
        along = axis or 0
        whole = x.shape[along]
        if sizes is None or not sizes.ndim:
            step = 1 if sizes is None else int(sizes)
            if step < 1:
                raise ValueError(f"pieces of {step} elements")
            ends = [min(start + step, whole) for start in range(0, whole, step)]
        else:
            ends = np.cumsum(sizes).tolist()
            if (sizes < 0).any() or sizes.sum() != whole:
                raise ValueError(f"pieces of {sizes.tolist()} of {whole} elements")
        pieces = np.split(x, ends[:-1], along) if ends else []
        if sizes is None and keepdims == 0:
            pieces = [piece.squeeze(along) for piece in pieces]
        return (list(pieces),)


class _Held(list[Any]):
    """What an optional holds: one value, or nothing. The evaluator passes lists on."""

    def copy(self) -> _Held:
        """Another one, which Identity gives."""
        return _Held(self)


class Optional(OpRun):
    """Optional that may hold nothing; the evaluator's own is a list of None then."""

    op_domain = ""

    def _run(self, held: Any = None, type: Any = None) -> tuple[_Held]:  # noqa: ARG002
        return (_Held([] if held is None else [held]),)


class OptionalHasElement(OpRun):
    """Whether there is something in an optional of ours; a tensor and a sequence are something."""

    op_domain = ""

    def _run(self, given: Any = None) -> tuple[A]:
        return (np.array(len(given) > 0 if isinstance(given, _Held) else given is not None),)


class OptionalGetElement(OpRun):
    """What an optional of ours holds; of a tensor or a sequence itself."""

    op_domain = ""

    def _run(self, given: Any) -> tuple[Any]:
        if isinstance(given, _Held) and not given:
            raise ValueError("the optional holds nothing")
        return (given[0] if isinstance(given, _Held) else given,)


def _no_rows(value: onnx.ValueInfoProto) -> A:
    """What a scan output is when the loop never runs; dimensions that nobody knows are 0."""
    tensor = value.type.tensor_type
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type or onnx.TensorProto.FLOAT)
    return np.empty((0, *(size.dim_value for size in tensor.shape.dim)), kind)


class Tile(_ReferenceTile):
    """Tile whose repeats cannot be negative: NumPy's gives back memory that nobody wrote for some
    of them.
    """

    op_domain = ""

    def _run(self, x: A, repeats: A) -> tuple[A]:
        return (tiled(x, repeats),)


class GridSample(_ReferenceGridSample):
    """GridSample with the pixels beside an image padded one by one, as ONNX Runtime has it (PyTorch throws a
    position back before it rounds it to the nearest).

    The evaluator's own moves the position into the image first, and takes the neighbours of another
    place in cubic interpolation.
    """

    op_domain = ""

    def _run(
        self,
        X: A,  # noqa: N803
        grid: A,
        mode: str | None = None,
        padding_mode: str | None = None,
        align_corners: int | None = None,
    ) -> tuple[A]:
        kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode or "linear", mode or "linear")
        sizes, count = X.shape[2:], len(X)
        if grid.ndim != X.ndim or grid.shape[-1] != len(sizes) or len(grid) != count:
            raise ValueError(f"a grid {list(grid.shape)} does not fit {list(X.shape)}")
        wide = np.result_type(grid.dtype, np.float32)  # where ONNX Runtime computes for half floats
        places = grid.astype(wide).reshape(count, -1, len(sizes))[..., ::-1]
        aligned = bool(align_corners)
        axes = [
            _taps(places[..., axis], size, kind, padding_mode or "zeros", aligned)
            for axis, size in enumerate(sizes)
        ]
        rows = np.arange(count)[:, None]
        total: A = np.zeros((count, places.shape[1], X.shape[1]), np.result_type(X.dtype, wide))
        for chosen in itertools.product(*(zip(*axis, strict=True) for axis in axes)):
            weight = np.ones(places.shape[:2], places.dtype)
            for _, factor in chosen:
                weight = weight * factor
            under: tuple[Any, ...] = (rows, slice(None), *(index for index, _ in chosen))
            # what is outside is nothing, be it infinite at the place that stands for it
            total += np.where(weight[..., None] == 0, 0, X[under] * weight[..., None])
        shape = (count, *grid.shape[1:-1], X.shape[1])
        return (np.moveaxis(total.reshape(shape), -1, 1).astype(X.dtype),)


def _taps(
    place: A, size: int, kind: str, padding: str, aligned: bool
) -> tuple[list[npt.NDArray[np.intp]], list[A]]:
    """Indices into an axis, and weights, of each tap that a position in [-1, 1] reads."""
    if kind not in ("nearest", "linear", "cubic"):
        raise ValueError(f"there is no mode {kind!r}")
    if padding not in ("zeros", "border", "reflection"):
        raise ValueError(f"there is no padding {padding!r}")
    place = (place + 1) / 2 * (size - 1) if aligned else ((place + 1) * size - 1) / 2
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    if kind == "nearest":  # rounded before it is thrown back, as in ONNX Runtime
        place = np.rint(place)
    if kind != "cubic" and padding == "border":
        place = np.clip(place, 0, size - 1)
    elif kind != "cubic" and padding == "reflection":
        place = _reflected(place, low, high)
    if kind == "nearest":
        pixels, weights = [place], [np.ones_like(place)]
    elif kind == "linear":
        first = np.floor(place)
        pixels, weights = [first, first + 1], [1 - (place - first), place - first]
    else:
        first = np.floor(place)
        pixels = [first + k for k in range(-1, 3)]
        weights = list(np.moveaxis(cubic_weights(place - first, _CUBIC), -1, 0))
    if padding == "zeros":
        weights = [
            np.where((pixel >= 0) & (pixel < size), weight, 0)
            for pixel, weight in zip(pixels, weights, strict=True)
        ]
    elif padding == "reflection":
        pixels = [np.rint(_reflected(pixel, low, high)) for pixel in pixels]
    inside = [np.clip(np.nan_to_num(pixel), 0, size - 1).astype(np.intp) for pixel in pixels]
    return inside, weights


def _reflected(place: A, low: float, high: float) -> A:
    """Positions thrown back into [low, high] from its ends, as often as it takes."""
    if high <= low:
        return np.full_like(place, low)
    away = np.where(place < low, low - place, place - high)
    turns = np.floor(away / (high - low))
    rest = away - turns * (high - low)
    from_low = (place < low) == (turns % 2 == 0)
    found = np.where(from_low, low + rest, high - rest)
    return np.where((place < low) | (place > high), found, place).astype(place.dtype)


class MaxPool(_ReferenceMaxPool):
    """MaxPool whose indices count through the whole tensor; the evaluator's start anew in each image of it
    for some windows.
    """

    op_domain = ""

    def _run(  # type: ignore[override]  # as the evaluator's own
        self,
        x: A,
        auto_pad: str | None = None,
        ceil_mode: int | None = None,
        dilations: Sequence[int] | None = None,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        storage_order: int | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[A, ...]:
        attrs: dict[str, Any] = {
            "auto_pad": auto_pad or "NOTSET",
            "ceil_mode": ceil_mode or 0,
            "dilations": tuple(dilations or ()),
            "kernel_shape": tuple(kernel_shape or ()),
            "pads": tuple(pads or ()),
            "strides": tuple(strides or ()),
        }
        spatial = x.shape[2:]
        win = window(attrs, spatial, attrs["kernel_shape"])
        end = [max(r - b - n, 0) for r, b, n in zip(win.reach, win.begin, spatial, strict=True)]
        order: Literal["F", "C"] = "F" if storage_order else "C"
        numbers = np.arange(int(np.prod(spatial)), dtype=np.int64).reshape(spatial, order=order)
        places = pad_spatial(numbers[None, None], win.begin, end, -1)
        best: A = np.zeros((*x.shape[:2], *win.out), x.dtype)
        found = np.full(best.shape, -1, np.int64)
        padded = pad_spatial(x, win.begin, end, 0)
        for (_, values), (_, place) in zip(win.taps(padded), win.taps(places), strict=True):
            better = (place >= 0) & ((found < 0) | (values > best))
            best = np.where(better, values, best)
            found = np.where(better, place, found)
        planes = np.arange(x.shape[0] * x.shape[1], dtype=np.int64).reshape(
            *x.shape[:2], *[1] * len(spatial)
        )
        return (best, found + planes * numbers.size)[: len(self.output)]


class ScatterElements(_ReferenceScatterElements):
    """ScatterElements for all elements at once."""

    op_domain = ""

    def _run(
        self,
        data: A,
        indices: A,
        updates: A,
        axis: int | None = None,
        reduction: str | None = None,
    ) -> tuple[A]:
        if indices.shape != updates.shape or indices.ndim != data.ndim:
            raise ValueError("indices and updates differ in shape, or from the data in rank")
        along = axis or 0
        if not -data.ndim <= along < data.ndim:
            raise ValueError(f"there is no axis {along}")
        places: list[Any] = list(np.indices(indices.shape, sparse=True))
        places[along] = _inside(indices, data.shape[along])
        return (_scattered(data, tuple(places), updates, reduction or "none"),)


class ScatterND(_ReferenceScatterND):
    """ScatterND for all slices at once."""

    op_domain = ""

    def _run(self, data: A, indices: A, updates: A, reduction: str | None = None) -> tuple[A]:
        depth = indices.shape[-1]
        if updates.shape != (*indices.shape[:-1], *data.shape[depth:]):
            raise ValueError(
                f"updates {list(updates.shape)} do not fit indices {list(indices.shape)} into {list(data.shape)}"
            )
        places = tuple(_inside(indices[..., k], data.shape[k]) for k in range(depth))
        return (_scattered(data, places or (...,), updates, reduction or "none"),)


def _inside(indices: A, size: int) -> A:
    """Indices counted from the front.

    Raises:
        IndexError: one lies outside.
    """
    if ((indices < -size) | (indices >= size)).any():
        raise IndexError(f"an index lies outside of {size} elements")
    return np.where(indices < 0, indices + size, indices)


def _scattered(data: A, places: Sequence[Any], updates: A, reduction: str) -> A:
    """A copy of the data with the updates at their places, one after the other."""
    found: A = data.copy()
    if reduction == "none":
        found[tuple(places)] = updates
    else:
        _REDUCTIONS[reduction].at(found, tuple(places), updates)
    return found


_CARRIERS = {
    **dict.fromkeys(("int2", "int4"), np.int8),
    **dict.fromkeys(("uint2", "uint4"), np.uint8),
    "bfloat16": np.float32,
    "float4_e2m1fn": np.float32,
    **{
        f"float8_{form}": np.float32
        for form in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
    },
}
"""ml_dtypes' name of an element type -> what carries it."""


def carried(array: A) -> A:
    """In the NumPy type that carries such elements here: texts as objects, 4-bit integers in 8
    bits, bf16 in f32.
    """
    if array.dtype.kind in "US":
        return array.astype(object)
    wider = _CARRIERS.get(array.dtype.name)
    return array if wider is None else array.astype(wider)


def _by_row(op: str) -> type[OpRun]:
    """An operator as the op table has it."""
    spec = OPS[op]

    def run(_: OpRun, *arrays: Any, **given: Any) -> tuple[Any, ...]:
        told = {name: value for name, value in given.items() if value is not None}
        attrs: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in told.items()}
        for name in {"output_dtype", "precision"} & attrs.keys():
            attrs[name] = DTYPES.get(attrs[name])
        if op == "QuantizeLinear" and len(arrays) > 2 and arrays[2] is not None:
            attrs["output_dtype"] = DTYPES[onnx.helper.np_dtype_to_tensor_dtype(arrays[2].dtype)]
        operands: list[Any] = [None if array is None else carried(array) for array in arrays]
        if op == "DequantizeLinear":
            operands[1] = operands[1].astype(np.float32)
        assert spec.evaluate is not None
        found = spec.evaluate(operands, spec.complete(attrs))[0]
        kind = attrs.get("output_dtype")
        if op == "QuantizeLinear":
            kind = kind or DType.U8
        wanted = (
            onnx.helper.tensor_dtype_to_np_dtype(ELEMENT_TYPES[kind])
            if kind
            else arrays[op == "DequantizeLinear"].dtype
        )
        return (found.astype(wanted),)

    return type(op, (OpRun,), {"op_domain": "", "_run": run})


_ROWS: Final = ("DequantizeLinear", "GlobalLpPool", "LpPool", "QuantizeLinear")
IN_PLACE: Final[tuple[type[OpRun], ...]] = (
    *(GridSample, Loop, MaxPool, ScatterElements, ScatterND, Tile),
    *(Optional, OptionalGetElement, OptionalHasElement),
    *(SequenceAt, SequenceInsert, SequenceMap, SplitToSequence),
    *map(_by_row, _ROWS),
)
"""What the evaluator is given."""
