"""Runs a foreign op, one that the op table has no row for, by `onnx.reference`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx.reference import ReferenceEvaluator

from ..errors import InvalidInput, UnsupportedOp
from ..ir.node import Node
from ..ir.ops.foreign_guards import onnx_speaking
from ..ir.ops.spec import Array, Attr
from ..plan.foreign import foreign_model
from .budget import MOST_TRIPS
from .evaluator import IN_PLACE, carried, trips

_PACKAGES = {"PIL": "Pillow"}  # where a package is called otherwise than its module

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
        evaluator = ReferenceEvaluator(model, new_ops=list(IN_PLACE))
    outputs = list(node.output)

    def run(arrays: Sequence[Array | None]) -> list[Array]:
        feeds = {name: array for name, array in zip(positions, arrays, strict=False) if name}
        trips.left = trips.most = MOST_TRIPS
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
                    carried(_tensor(found[name])) if name else np.empty(0, np.float32)
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
