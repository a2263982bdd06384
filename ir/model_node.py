"""A node as the user's model has it: what is left to tell where no step bears its name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelNode:
    """One node of the user's model, local functions inlined.

    Attributes:
        name: its name; that of its first output where it has none, as decisions and origins call
            it.
        op: its operator.
        inputs: the values that it reads, those of its subgraphs included.
        outputs: the values that it writes.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
