"""Of recurrent layers."""

from __future__ import annotations

from ..enums import DataType
from .defect import Defect, operand

LAYERS: tuple[Defect, ...] = (
    *(
        Defect(
            f"{kind} of s8",
            kind,
            r"ref$",
            lambda request: operand(request, "src_layer").dtype == DataType.s8,
            "its codes are s8, on a CPU without AMX",
            "hidden states below 0 become 0: they are stored as codes of u8",
            "NumPy",
            "every layer with such a state",
        )
        for kind in ("gru", "lstm")
    ),
)
