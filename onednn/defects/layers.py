"""Of recurrent layers."""

from __future__ import annotations

from ..enums import DataType
from .defect import BOTH, Defect, operand

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
            versions=versions,
        )
        for kind, versions in (("gru", BOTH[:1]), ("lstm", BOTH))
    ),
    Defect(
        "lstm of bf16 with a projection",
        "lstm",
        r"brgemm:",
        lambda request: (
            operand(request, "src_layer").dtype == DataType.bf16
            and request.operands.get("weights_projection") is not None
        ),
        "its tensors are bf16, and it has a projection",
        "other hidden states, which without AVX512-BF16 the reference gives right",
        "the next implementation, or NumPy",
        "all of 19 drawn layers: off by up to 0.7 and more, of states up to 1",
        versions=BOTH,
    ),
    *(
        Defect(
            f"{kind} on AMX",
            kind,
            r"brgemm:avx512_core_amx",
            lambda _: True,
            "its tensors are u8, s8 or bf16, on a CPU with AMX; it depends on how sizes and samples are cut into tiles:"
            " avoided for all",
            "the process ends: an illegal instruction, or memory beside its scratchpad is overwritten",
            "the next implementation, of AVX512-BF16 or VNNI, or NumPy",
            f"{ended} drawn layers; LSTM of one sample over several steps, and inputs of another number than"
            " hidden values",
        )
        for kind, ended in (("lstm", "56 of 220"), ("gru", "62 of 253"), ("augru", "29 of 107"))
    ),
)
