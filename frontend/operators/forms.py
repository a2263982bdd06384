"""What an op of another domain may look like, and how its meaning is written: a row for each op in
the tables of `fused.py`, `channel_blocks.py`, `embedding.py` and `attention.py`.

ONNX has no schema for these ops here, so that a row says which inputs, outputs and attributes are
taken. Whatever else a node has is refused by its name: it might mean something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final

from ...errors import UnsupportedOp
from ..importer import Handler, Importer
from ..nodes import OnnxNode
from .derived import Derived

_OTHERWISE: Final = (
    "nothing here computes it: let the tool that wrote the model write ONNX's own operators in this place "
    "(of ONNX Runtime's optimizer: ORT_DISABLE_ALL)"
)
_OPTIONAL: Final = "?"
_NOT_TAKEN: Final = "-"


@dataclass(frozen=True)
class Form:
    """A row: the form of an op that is taken.

    Attributes:
        inputs: names of its inputs in order; `name?` may be absent, `name-` is not taken.
        outputs: names of its outputs in order; `name?` may be absent, `name-` is not made: such
            ones are refused where something reads them.
        run: writes what it means; all attributes have their values by then.
        attrs: name -> default of an attribute that is taken; a type where it has no default and
            must be there, None where it may be absent.
        only: name -> the one value at which an attribute is taken, its default.
    """

    inputs: str
    outputs: str
    run: Callable[[Derived], None]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Any] = field(default_factory=dict)

    @property
    def handler(self) -> Handler:
        """Imports a node of this form, and is described as its meaning is."""

        @wraps(self.run)
        def handler(ctx: Importer, node: OnnxNode) -> None:
            self.run(Derived(ctx, self._taken(ctx, node)))

        return handler

    def _taken(self, ctx: Importer, node: OnnxNode) -> OnnxNode:
        """The node with all attributes filled in.

        Raises:
            InvalidModel: an input or attribute is missing, or there are too many inputs.
            UnsupportedOp: an attribute, a value of one, or an output that no row has.
        """
        names = self.inputs.split()
        if len(node.inputs) > len(names):
            raise node.invalid(
                f"{node.op} takes {len(names)} inputs, and has {len(node.inputs)}: {', '.join(names)}"
            )
        for name, value in _beside(names, node.inputs):
            if value and name.endswith(_NOT_TAKEN):
                raise UnsupportedOp(
                    f"the input {name.removesuffix(_NOT_TAKEN)} of {node.op}",
                    where=node.where,
                    hint=_OTHERWISE,
                )
            if not value and name[-1] not in (_OPTIONAL, _NOT_TAKEN):
                raise node.invalid(f"{node.op} needs its input {name}, which is absent")
        self._check_outputs(ctx, node)
        return node.rewritten(**dict(self._attributes(node)))

    def _check_outputs(self, ctx: Importer, node: OnnxNode) -> None:
        names = self.outputs.split()
        for index, value in enumerate(node.outputs):
            name = names[index] if index < len(names) else f"{index}-"
            if not name.endswith(_NOT_TAKEN) or not (
                value in ctx.model_outputs or ctx.wiring.readers.get(value)
            ):
                continue
            raise UnsupportedOp(
                f"the output {name.removesuffix(_NOT_TAKEN)} of {node.op}, which is read",
                where=node.where,
                hint="export the model without the readers of this output",
            )
        if not node.output(0):
            raise node.invalid(f"{node.op} has no output")

    def _attributes(self, node: OnnxNode) -> Iterator[tuple[str, Any]]:
        for name, value in node.attrs.items():
            if name.startswith("__"):  # ONNX lets tools keep notes under such names
                continue
            if name not in self.attrs and (name not in self.only or value != self.only[name]):
                raise UnsupportedOp(
                    f"the attribute {name} of {node.op} is {value!r}"[:200],
                    where=node.where,
                    hint=_OTHERWISE,
                )
        for name, default in self.attrs.items():
            if isinstance(default, type) and name not in node.attrs:
                raise node.invalid(f"{node.op} needs the attribute {name}")
            value = node.attr(name, default)
            if default is not None and not _is_like(value, default):
                raise node.invalid(f"the attribute {name} of {node.op} is {value!r}"[:200])
            yield name, value


def _is_like(value: object, default: object) -> bool:
    """True of a value of the kind that the default has, or is."""
    kind = default if isinstance(default, type) else type(default)
    return isinstance(value, (int, float) if kind is float else kind)


def _beside(names: list[str], values: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    return zip(names, (*values, *[""] * (len(names) - len(values))), strict=True)


def handlers(domain: str, rows: Mapping[str, Form]) -> Mapping[tuple[str, str], Handler]:
    """(domain, op) -> handler for a table of rows."""
    return {(domain, op): row.handler for op, row in rows.items()}
