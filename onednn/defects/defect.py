"""What a defect is, and what the rows ask of a request."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..attributes import Binary
from ..memory import MemoryDesc
from ..primitive_desc import PrimitiveDesc, Request

BOTH = ("3.2.0", "3.13.2")
"""The versions that all rows were tried with."""


@dataclass(frozen=True)
class Defect:
    """A known defect.

    Attributes:
        name: unique.
        kind: of the primitive.
        implementation: a regular expression for the beginning of the implementation's name.
        occurs: whether it concerns what was asked for.
        when: the same in words.
        symptom: what comes out.
        instead: what is done.
        figure: what was measured, with the first of the versions.
        versions: of oneDNN that were seen to compute it wrongly. What was not measured is taken to be wrong, from
            `since` to `mended`.
        since: the first version that it concerns.
        mended: the first version that was measured and computes it right; None: none is known.
    """

    name: str
    kind: str
    implementation: str
    occurs: Callable[[Request], bool]
    when: str
    symptom: str
    instead: str
    figure: str
    versions: tuple[str, ...] = (BOTH[0],)
    since: tuple[int, int, int] = (3, 2, 0)
    mended: tuple[int, int, int] | None = None

    def is_of(self, kind: str, version: tuple[int, int, int]) -> bool:
        """True where primitives of this kind have it in this version of oneDNN."""
        return (
            kind == self.kind
            and version >= self.since
            and (self.mended is None or version < self.mended)
        )

    def concerns(self, desc: PrimitiveDesc) -> bool:
        """True where the implementation computes this wrongly."""
        return (
            self.is_of(desc.kind, desc.library.version.triple)
            and re.match(self.implementation, desc.impl_info) is not None
            and self.occurs(desc.request)
        )


def operand(request: Request, role: str) -> MemoryDesc:
    """The descriptor of an argument that the request has."""
    desc = request.operands[role]
    if desc is None:
        raise ValueError(f"{request} has no {role}")
    return desc


def binary_operands(request: Request) -> list[tuple[int, ...]]:
    """Sizes of the operands of its binary post-ops."""
    return [op.src1.dims for op in request.attributes.post_ops if isinstance(op, Binary)]
