"""Limits on what a model may demand, checked on Python integers before anything is allocated.

A model is data from elsewhere: a file of a few bytes may declare a tensor of terabytes. Every limit
can be raised by the caller; the error names the field to raise.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..errors import InvalidInput, InvalidModel

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Budgets:
    """What one model may demand.

    Attributes:
        file_bytes: size of the model file (external data not counted). Protobuf itself ends at 2
            GiB.
        protobuf_fields: fields in the file; a message of two bytes takes about 160 bytes once
            parsed.
        nodes: nodes, those of subgraphs counted, after model-local functions are inlined; in a file
            also those of all functions.
        tensor_bytes: one constant once it is dense and unpacked (4-bit integers take a byte, sparse
            tensors all their zeros).
        constant_bytes: all constants together.
        folded_bytes: one constant that is computed at import (shape arithmetic, the parameters of a
            quantizer).
        run_bytes: what a session computes with at a time: one value, or the memory of one run;
            None: what the machine has.
    """

    file_bytes: int = 2 * _GIB - 1
    protobuf_fields: int = 20_000_000
    nodes: int = 1_000_000
    tensor_bytes: int = 4 * _GIB
    constant_bytes: int = 16 * _GIB
    folded_bytes: int = 16 * _MIB
    run_bytes: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            limit = getattr(self, field.name)
            if not (isinstance(limit, int) and limit >= 0) and not (
                limit is None and field.default is None
            ):
                raise InvalidInput(
                    f"the budget {field.name} is {limit!r}, and has to be a number",
                    hint="give an int of 0 or more",
                )

    def check(self, field: str, needed: int, what: str, *, where: str = "") -> None:
        """Refuses a demand that goes past the limit `field`.

        Raises:
            InvalidModel: `needed` is larger than the limit.
        """
        limit = int(getattr(self, field))
        if needed <= limit:
            return
        unit = _size if field.endswith("_bytes") else _count
        raise InvalidModel(
            f"{what} needs {unit(needed)}, and the budget allows {unit(limit)}",
            where=where,
            hint=f"if the model is to be trusted, pass budgets=fqfuse.Budgets({field}={needed}) or more",
        )


DEFAULT = Budgets()
"""The limits when the caller names none."""


def _size(count: int) -> str:
    for unit, name in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def _count(count: int) -> str:
    return f"{count:,}"


def check_budgets(budgets: object) -> None:
    """Refuses what is no `Budgets`.

    Raises:
        InvalidInput: it is something else.
    """
    if not isinstance(budgets, Budgets):
        raise InvalidInput(
            f"budgets are of type {type(budgets).__name__}",
            hint="pass budgets=fqfuse.Budgets(...)",
        )
