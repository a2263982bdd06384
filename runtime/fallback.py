"""Runs a foreign op, one that the op table has no row for, by `onnx.reference`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops.op_loop import Loop as _ReferenceLoop
from onnx.reference.ops.op_tile import Tile as _ReferenceTile

from ..errors import InvalidInput, UnsupportedOp
from ..ir.node import Node
from ..ir.ops.foreign_guards import onnx_speaking
from ..ir.ops.movement import tiled
from ..ir.ops.spec import Array, Attr
from ..plan.foreign import foreign_model
from .budget import MOST_TRIPS

_PACKAGES = {"PIL": "Pillow"}  # where a package is called otherwise than its module

_trips = threading.local()

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

ForeignOp = Callable[[Sequence[Array | None]], list[Array]]
"""Inputs of a foreign op, in order (None: absent) -> its outputs."""


def foreign_op(params: Mapping[str, Attr], where: str) -> ForeignOp:
    """What runs one foreign node.

    Args:
        params: of the op `Onnx`: op_type, domain, opset, proto (a serialized NodeProto).
        where: the node in the user's model, for messages.

    Raises:
        UnsupportedOp: `onnx.reference` does not implement the op.
        InvalidModel: the node cannot be read.
    """
    model, positions = foreign_model(params, where)
    node, opset = model.graph.node[0], params["opset"]
    name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    with onnx_speaking(
        lambda said: UnsupportedOp(
            f"nothing here can run the operator {name} (opset {opset!r}): {said}",
            where=where,
            hint="replace it in the model by standard ONNX operators",
        )
    ):
        evaluator = ReferenceEvaluator(model, new_ops=[Loop, Tile])
    outputs = list(node.output)

    def run(arrays: Sequence[Array | None]) -> list[Array]:
        feeds = {name: array for name, array in zip(positions, arrays, strict=False) if name}
        _trips.left = MOST_TRIPS
        try:
            with (
                onnx_speaking(
                    lambda said: _uncomputable(node.op_type, arrays, said, where),
                    through=(ImportError, MemoryError),
                ),
                np.errstate(all="ignore"),  # infinities and NaN are the model's own
            ):
                found = dict(
                    zip([name for name in outputs if name], evaluator.run(None, feeds), strict=True)
                )
                return [
                    _carried(_tensor(found[name])) if name else np.empty(0, np.float32)
                    for name in outputs
                ]
        except ImportError as error:
            raise _needs_a_package(node.op_type, error, where) from error
        except MemoryError as error:
            raise InvalidInput(
                f"there is not enough memory for {node.op_type} on {_described(arrays)}: {error}".rstrip(
                    ": "
                ),
                where=where,
                hint="feed smaller inputs, or use a larger machine",
            ) from error

    return run


class Foreigners:
    """Runs the nodes that the op table has no row for, each made ready once."""

    def __init__(self) -> None:
        self._ready: dict[str, ForeignOp] = {}

    def __call__(self, node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
        """The node's outputs."""
        if node.name not in self._ready:
            self._ready[node.name] = foreign_op(node.attrs, ", ".join(node.origin) or node.name)
        return self._ready[node.name](arrays)


def _needs_a_package(op: str, error: ImportError, where: str) -> UnsupportedOp:
    name = error.name or getattr(error.__cause__, "name", None) or ""
    module = str(name).partition(".")[0]
    return UnsupportedOp(
        f"{op} needs a package that is not installed: {error}",
        where=where,
        hint=f"install it: pip install {_PACKAGES.get(module, module)}",
    )


def _uncomputable(op: str, arrays: Sequence[Array | None], reason: str, where: str) -> InvalidInput:
    return InvalidInput(
        f"{op} cannot be computed on {_described(arrays)}: {reason}",
        where=where,
        hint="check the inputs of this node",
    )


def _described(arrays: Sequence[Array | None]) -> str:
    return ", ".join("absent" if a is None else f"{a.dtype}{list(a.shape)}" for a in arrays)


def _tensor(result: object) -> Array:
    """An output as an array; a sequence, a map and an absent optional are none.

    Raises:
        TypeError: it is no tensor.
    """
    if result is None or isinstance(result, list | dict):
        raise TypeError(
            f"an output is no tensor but {'nothing' if result is None else f'a {type(result).__name__}'}"
        )
    return np.asarray(result)


def _carried(array: Array) -> Array:
    """In the NumPy type that carries such elements here: texts as objects, 4-bit integers in 8
    bits, bf16 in f32.
    """
    if array.dtype.kind in "US":
        return array.astype(object)
    wider = _CARRIERS.get(array.dtype.name)
    return array if wider is None else array.astype(wider)


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
            _trips.left -= 1
            if _trips.left < 0:
                raise RuntimeError(f"it takes more than {MOST_TRIPS} trips")
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


class Tile(_ReferenceTile):
    """Tile whose repeats cannot be negative: NumPy's gives back memory that nobody wrote for some
    of them.
    """

    op_domain = ""

    def _run(self, x: Array, repeats: Array) -> tuple[Array]:
        return (tiled(x, repeats),)


def _no_rows(value: onnx.ValueInfoProto) -> Array:
    """What a scan output is when the loop never runs; dimensions that nobody knows are 0."""
    tensor = value.type.tensor_type
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type or onnx.TensorProto.FLOAT)
    return np.empty((0, *(size.dim_value for size in tensor.shape.dim)), kind)
