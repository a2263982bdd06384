"""Einsum as the matrix product that it is, where it sums over what two operands share: transposed and reshaped
operands, as PyTorch's and TensorFlow's attention write them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...ir.ops import dims
from ...ir.types import Dim, DType
from ..importer import Handler, Importer
from ..nodes import DEFAULT_DOMAIN, OnnxNode
from .derived import Derived
from .foreign import import_foreign

_FLOATS: Final = frozenset({DType.F32, DType.F16, DType.BF16})


@dataclass(frozen=True)
class _Product:
    """What the labels of an equation are, in the order of the result where that has them.

    Attributes:
        first, second: labels of the operands; `swapped`: the equation has them the other way round.
        batch: in both operands and the result; `rows` and `columns`: in one operand and the result.
        summed: in both operands alone.
        result: labels of the result.
    """

    first: str
    second: str
    swapped: bool
    batch: str
    rows: str
    columns: str
    summed: str
    result: str


def _import_einsum(ctx: Importer, node: OnnxNode) -> None:
    if not _as_product(Derived(ctx, node)):
        import_foreign(ctx, node)


EINSUMS: Final[Mapping[tuple[str, str], Handler]] = {(DEFAULT_DOMAIN, "Einsum"): _import_einsum}
"""(domain, op) -> handler."""


def _as_product(at: Derived) -> bool:
    """Imports the node as a matrix product; False, and nothing done, where it is none."""
    product = _product_of(str(at.node.attr("equation", "")))
    operands = at.node.inputs
    if product is None or len(operands) != 2 or not all(operands):
        return False
    one, other = reversed(operands) if product.swapped else operands
    sizes = _sizes(at, {one: product.first, other: product.second}) if one != other else None
    if sizes is None:
        return False
    # without labels that both have, rows need not be one dimension
    apart = not product.batch and bool(product.rows)
    rows = list(product.rows) if apart else [product.rows]
    groups = [*product.batch, *rows, product.summed]
    behind = [*product.batch, product.summed, product.columns]
    shapes = _merged(groups, sizes), _merged(behind, sizes)
    labels = product.batch + product.rows + product.columns
    single = [*product.batch, *rows, product.columns]
    there = next((i for i, group in enumerate(single) if len(group) != 1), len(labels))
    whole = _apart(labels, sizes, there)
    merged = there < len(single)
    if shapes[0] is None or shapes[1] is None or (merged and whole is None):
        return False
    a = _arranged(at, one, product.first, "".join(groups), shapes[0], "left")
    b = _arranged(at, other, product.second, "".join(behind), shapes[1], "right")
    _finish(at, (a, b), labels, product.result, whole if merged else None)
    return True


def _product_of(equation: str) -> _Product | None:
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != 2 or "." in equation or any(len(set(term)) < len(term) for term in terms):
        return None
    one, other = terms
    if not arrow:
        result = "".join(sorted(set(one) ^ set(other)))
    if len(set(result)) < len(result) or not set(result) <= set(one + other):
        return None
    batch = "".join(x for x in result if x in one and x in other)
    free = [x for x in result if x not in batch]
    swapped = bool(free) and free[0] in other
    if swapped:
        one, other = other, one
    rows = "".join(x for x in free if x in one)
    columns = "".join(x for x in free if x in other)
    summed = "".join(x for x in one if x in other and x not in batch)
    alone = (set(one) ^ set(other)) - set(free)
    if not summed or alone:
        return None
    return _Product(one, other, swapped, batch, rows, columns, summed, result)


def _sizes(at: Derived, terms: Mapping[str, str]) -> dict[str, Dim] | None:
    """The size of each label; None where ranks or types are others, or sizes may differ or be 0."""
    found: dict[str, Dim] = {}
    for value, term in terms.items():
        type_ = at.ctx.type(value)
        if type_.dtype not in _FLOATS or type_.shape is None or len(type_.shape) != len(term):
            return None
        for label, size in zip(term, type_.shape, strict=True):
            if size == 0 or (label in found and not dims.same(found[label], size)):
                return None
            found[label] = size
    return found


def _merged(groups: Sequence[str], sizes: Mapping[str, Dim]) -> list[int] | None:
    """The shape that gives each group of labels one dimension, as Reshape takes it; empty where each has
    one already, None where a product of sizes is not known.
    """
    if all(len(group) == 1 for group in groups):
        return []
    shape: list[int] = []
    for place, group in enumerate(groups):
        known = [size for label in group if isinstance(size := sizes[label], int)]
        if len(known) == len(group):
            shape.append(math.prod(known))
        elif len(group) == 1 and all(len(before) == 1 for before in groups[:place]):
            shape.append(0)  # as it is
        else:
            return None
    return shape


def _apart(labels: str, sizes: Mapping[str, Dim], there: int) -> list[int] | None:
    """The shape that gives each label one dimension, as Reshape takes it, of which the first ones are there;
    None where it is not known.
    """
    shape = [size if isinstance(size := sizes[label], int) else 0 for label in labels]
    return shape if all(shape[there:]) else None


def _arranged(
    at: Derived, value: str, labels: str, wanted: str, shape: Sequence[int], role: str
) -> str:
    """The operand with its labels as wanted, in groups; of constant codes with one scale the codes."""
    decoded = at.ctx.graph.producer(value, "Dequantize")
    codes = decoded.input if decoded is not None and decoded.quant.per_tensor else ""
    if not codes or at.ctx.constant(codes) is None:
        codes = ""
    moved = codes or value
    if labels != wanted:
        perm = tuple(labels.index(label) for label in wanted)
        moved = at.real("Transpose", [moved], {"perm": perm}, role=f"{role} turned")
    if shape:
        moved = at.real("Reshape", [moved, at.integers(f"{role} sizes", shape)], role=role)
    if not codes or moved == codes or decoded is None:
        return value if moved == codes else moved
    quant = {"quant": decoded.quant}
    return at.ctx.emit(
        at.node, "Dequantize", (moved,), quant, role=f"{role} decoded", quantizer=decoded.quantizer
    )


def _finish(
    at: Derived, operands: Sequence[str], labels: str, result: str, shape: Sequence[int] | None
) -> None:
    """The product, with a dimension for each label, in the order of the result."""
    final, turned = at.node.output(0), labels != result
    value = at.real("MatMul", operands, output="" if shape is not None or turned else final)
    if shape is not None:
        sizes = at.integers("sizes", shape)
        value = at.real("Reshape", [value, sizes], role="apart", output="" if turned else final)
    if turned:
        perm = tuple(labels.index(label) for label in result)
        at.real("Transpose", [value], {"perm": perm}, role="turned", output=final)
