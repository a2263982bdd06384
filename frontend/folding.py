"""What is constant at import: computed on demand, and given to the ops whose output's shape depends
on it.

Parameters of quantizers and targets of reshapes are often computed by a few nodes from constants or
from shapes. They are evaluated here, within the budget, without changing those nodes; where nothing
reads them any more, they are dead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops import dims
from ..ir.ops.spec import UNCOMPUTABLE, Array, Attr
from ..ir.types import Dim, is_static
from .budgets import Budgets
from .size_inputs import (
    SHAPE_INPUTS,
    Emission,
    expand_is_identity,
    expand_target,
    reshape_target,
    resize_axes,
    slice_ends,
)
from .sizes import MOST_ENTRIES, Known, entries_of, known_outputs, numbers


class Folder:
    """Knows what is constant in a graph that is being imported.

    Args:
        graph: the graph; nodes are only added to it.
        budgets: `folded_bytes` limits each computed constant.
        fresh: gives a value name that nothing else has, from a wanted one.
    """

    def __init__(self, graph: Graph, budgets: Budgets, fresh: Callable[[str], str]) -> None:
        self._graph = graph
        self._budgets = budgets
        self._fresh = fresh
        self._sizes: dict[str, Known] = {}
        self._substitutes: dict[tuple[str, tuple[object, ...]], str] = {}
        self._computed: dict[str, Array | None] = {}
        self._computable: dict[str, bool] = {}

    def constant(self, value: str) -> Array | None:
        """The data of a value that is constant, or computed from constants and static shapes alone
        within the budget; otherwise None.
        """
        if value not in self._graph.values or not self._may_be_computed(value):
            return None  # not imported yet, or computed from inputs
        pending = [value]
        while pending:
            top = pending[-1]
            if self._settled(top):
                pending.pop()
                continue
            node = self._graph.producer(top)
            if node is None or not self._foldable(node):
                self._computed[top] = None
                continue
            unknown = [v for v in node.inputs if v and not self._settled(v)]
            if unknown:
                pending += unknown
                continue
            self._compute(node)
        return self._data(value)

    def known(self, value: str) -> Known | None:
        """What is known of the entries of a small tensor of integers: numbers, symbolic sizes, or
        `?`; None when nothing is.
        """
        if value in self._sizes:
            return self._sizes[value]
        data = self._graph.constant(value)
        return None if data is None else entries_of(data)

    def size(self, value: str, axis: int) -> int | None:
        """The size of a dimension, also where the type does not tell it: what the target of a Reshape says
        of that dimension alone.
        """
        while shape := self._graph.type(value).shape:
            axis %= len(shape)
            size, node = shape[axis], self._graph.producer(value)
            if isinstance(size, int):
                return size
            if node is not None and node.op in ("Cast", "Identity"):
                value = node.input
                continue
            if node is None or node.op not in ("Reshape", "Transpose"):
                return None
            if node.op == "Reshape":
                target = self.known(node.inputs[1])
                told = None if target is None else target.reshape(-1)[axis]
                return told if isinstance(told, int) and told > 0 else None
            value, axis = node.input, node.attr("perm", tuple)[axis]
        return None

    def learn(self, node: Node) -> None:
        """Takes notice of a node that has been added."""
        found = known_outputs(node, self._graph.values, self.known)
        self._sizes.update(
            (v, array)
            for v, array in zip(node.outputs, found, strict=False)
            if v and array is not None
        )

    def prepared(self, op: str, inputs: Sequence[str], attrs: dict[str, Attr]) -> Emission:
        """The node that is to be added instead of (op, inputs, attrs): with constants for what is
        known of its inputs.

        Sizes that are numbers become constants everywhere; other computed constants, and targets
        that are symbolic in part, where the output's shape depends on them.
        """
        reads = [
            self._substitute(v, self._sizes[v])
            if v in self._sizes and self._graph.constant(v) is None
            else v
            for v in inputs
        ]
        if op not in SHAPE_INPUTS:
            return op, reads, attrs
        for place in SHAPE_INPUTS[op]:
            value = reads[place] if place < len(reads) else ""
            data = self.constant(value) if value and self._graph.constant(value) is None else None
            if data is not None and data.size <= MOST_ENTRIES:
                reads[place] = self._add_substitute(value, data)
        return self._with_symbolic_target(op, reads, attrs)

    def _with_symbolic_target(self, op: str, reads: list[str], attrs: dict[str, Attr]) -> Emission:
        place = {"Reshape": 1, "Expand": 1, "Resize": 3, "Slice": 2}.get(op, len(reads))
        value = reads[place] if place < len(reads) else ""
        shape = self._graph.type(reads[0]).shape if reads[0] else None
        partly = self.known(value) if value and self._graph.constant(value) is None else None
        if shape is None or partly is None:
            return op, reads, attrs
        entries = partly.reshape(-1).tolist()
        target: list[int] | None = None
        if op == "Expand" and expand_is_identity(shape, entries):
            return "Identity", reads[:1], {}
        if op == "Resize" and not attrs.get("axes") and not reads[2]:
            found = resize_axes(shape, entries)
            if found is not None:
                target, attrs = found[1], {**attrs, "axes": tuple(found[0])}
        elif op == "Slice":
            axes = reads[3] if len(reads) > 3 else ""
            where = numbers(self.known(axes)) if axes else [*range(len(entries))]
            target = slice_ends(shape, entries, where)
            like = self._input_as_long(reads, entries) if target is None else None
            if like is not None and where is not None:
                return "SliceLike", [reads[0], like[0]], {"axis": where[0], "size_axis": like[1]}
        elif op == "Expand":
            target = expand_target(shape, entries)
        elif op == "Reshape":
            target = reshape_target(shape, entries, attrs)
            attrs = attrs if target is None else {**attrs, "allowzero": 0}
        if target is not None:
            reads[place] = self._add_substitute(
                value, np.asarray(target, self._graph.type(value).dtype.numpy)
            )
        return op, reads, attrs

    def _input_as_long(self, reads: Sequence[str], ends: Sequence[Dim]) -> tuple[str, int] | None:
        """The input of the model, and its dimension, that says the size where a Slice takes a size's first
        elements along one axis: from shapes alone the result's size is known then.
        """
        ways = [
            numbers(self.known(value)) if value else [at]
            for at, value in ((0, reads[1]), (1, (*reads, "", "")[4]))
        ]
        if ways != [[0], [1]] or len(ends) != 1:
            return None
        found = (
            (value, axis)
            for value in self._graph.inputs
            for axis, size in enumerate(self._graph.type(value).shape or ())
            if dims.same(size, ends[0])
        )
        return next(found, None)

    def _substitute(self, value: str, known: Known) -> str:
        data = self._data(value) if numbers(known) is not None else None
        return value if data is None else self._add_substitute(value, data)

    def _add_substitute(self, value: str, data: Array) -> str:
        """A constant that stands for a value: one for all that read it."""
        key = value, (*data.shape, *np.ravel(data).tolist())
        if key not in self._substitutes:
            self._substitutes[key] = self._graph.add_constant(
                self._fresh(f"{value}.known"), data, self._graph.type(value).dtype
            )
        return self._substitutes[key]

    # -- computing ---------------------------------------------------------------------------------

    def _may_be_computed(self, value: str) -> bool:
        """Whether all that a value is computed from is constant. Nothing is computed for it: weights
        would be decoded, and kept, for a product with what is fed.
        """
        pending = [value]
        while pending:
            top = pending[-1]
            if self._verdict(top) is None:
                node = self._graph.producer(top)
                inputs = [v for v in node.inputs if v] if node is not None else []
                verdicts = {v: self._verdict(v) for v in inputs}
                if node is None or not self._foldable(node) or False in verdicts.values():
                    self._computable[top] = False
                elif unknown := [v for v, verdict in verdicts.items() if verdict is None]:
                    pending += unknown
                    continue
                else:
                    self._computable[top] = True
            pending.pop()
        return bool(self._verdict(value))

    def _verdict(self, value: str) -> bool | None:
        """Whether a value may be computed; None where it is not known yet."""
        if self._settled(value):
            return self._data(value) is not None
        return self._computable.get(value)

    def _settled(self, value: str) -> bool:
        return (
            value in self._computed
            or self._graph.constant(value) is not None
            or numbers(self._sizes.get(value)) is not None
        )

    def _data(self, value: str) -> Array | None:
        found = self._graph.constant(value)
        if found is None and numbers(self._sizes.get(value)) is not None:
            return self._sizes[value].astype(self._graph.type(value).dtype.numpy)
        return self._computed[value] if found is None else found

    def _foldable(self, node: Node) -> bool:
        if node.spec.evaluate is None or not node.inputs:
            return False
        types = [self._graph.type(v) for v in node.outputs if v]
        return all(
            is_static(t.shape)
            and math.prod(t.static_shape) * t.dtype.numpy.itemsize <= self._budgets.folded_bytes
            for t in types
        )

    def _compute(self, node: Node) -> None:
        arrays = [self._data(v) if v else None for v in node.inputs]
        absent = any(v and array is None for v, array in zip(node.inputs, arrays, strict=True))
        results: Iterable[Array | None] = [None] * len(node.outputs)
        if not absent and node.spec.evaluate is not None:
            try:
                with np.errstate(all="ignore"):
                    results = node.spec.evaluate(arrays, node.attrs)
            except (
                UNCOMPUTABLE
            ):  # an index out of range, say: whoever runs the node reports it, if anybody does
                pass
        self._computed.update(
            (v, array) for v, array in zip(node.outputs, results, strict=False) if v
        )
