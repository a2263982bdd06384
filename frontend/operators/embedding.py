"""Embeddings of com.microsoft: words, positions and segments looked up, added and normalized."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ...ir.ops import dims
from ...ir.types import DType
from ..importer import Handler
from .derived import Derived
from .forms import Form, handlers
from .fused import MICROSOFT
from .heads import size


def _embedded(at: Derived) -> None:
    """EmbedLayerNormalization(input_ids, segment_ids?, word_embedding, position_embedding, segment_embedding?, gamma, beta, mask?,
    position_ids?){epsilon}: LayerNormalization of the sum of what is looked up; how many entries of each mask are 1, and the sum,
    are further outputs. Without segment_ids all are of the first segment.
    """
    _normalized(at, (2, 3, 4, 5, 6), at.input, at.input(8), at.node.output(2))


def _embedded_codes(at: Derived) -> None:
    """QEmbedLayerNormalization: an EmbedLayerNormalization whose tables, gamma and beta are codes, with scales and zero points."""

    def decoded(index: int) -> str:
        if not at.input(index):
            return ""
        place = (2, 3, 4, 5, 6).index(index)
        scale, zero = at.input(8 + place), at.input(13 + place)
        return at.dequantized(at.input(index), scale, zero, f"table {place}")

    _normalized(at, (2, 3, 4, 5, 6), decoded, "", "")


def _normalized(
    at: Derived,
    places: tuple[int, ...],
    table: Callable[[int], str],
    position_ids: str,
    sum_output: str,
) -> None:
    words, steps, segments, gamma, beta = (table(place) for place in places)
    if at.input(1) and not segments:
        raise at.node.invalid(f"{at.node.op} has segment_ids, and no segment_embedding")
    value = at.real("Gather", [words, at.input(0)], {"axis": 0}, role="words")
    last = sum_output if not segments else ""
    value = at.real("Add", [value, _positions(at, steps, position_ids)], role="placed", output=last)
    if segments:
        ids = _of_words(at, at.input(1)) if at.input(1) else at.integers("first segment", 0)
        kinds = at.real("Gather", [segments, ids], {"axis": 0}, role="segments")
        value = at.real("Add", [value, kinds], role="sum", output=sum_output)
    attrs = {"axis": -1, "epsilon": at.node.attrs["epsilon"]}
    at.real("LayerNormalization", [value, gamma, beta], attrs, output=at.node.output(0))
    if at.node.output(1):
        _counted(at)


def _of_words(at: Derived, segments: str) -> str:
    """Ids of segments, of the shape of the ids of words: it is theirs, but where a model computes them their type does not
    always tell it, and what reads the result wants to know its batch. Put side by side, in a run, others do not fit.
    """
    words = at.input(0)
    if dims.same_shape(at.ctx.type(words).shape, at.ctx.type(segments).shape):
        return segments
    behind = at.integers("behind", [2])
    both = [at.real("Unsqueeze", [ids, behind], role=f"{ids} apart") for ids in (words, segments)]
    pairs = at.real("Concat", both, {"axis": 2}, role="words and segments")
    return at.real("Gather", [pairs, at.integers("second", 1)], {"axis": 2}, role="segment ids")


def _positions(at: Derived, steps: str, ids: str) -> str:
    """The embeddings of the positions: of the first ones where no others are asked for."""
    if ids:
        return at.real("Gather", [steps, ids], {"axis": 0}, role="positions")
    ends = [
        at.integers("first", [0]),
        size(at, at.input(0), 1, "length"),
        at.integers("along", [0]),
    ]
    return at.real("Slice", [steps, *ends], role="positions")


def _counted(at: Derived) -> None:
    """How many entries of each mask are 1, as s32[B]; 0 without a mask."""
    mask = at.input(7)
    if mask:
        one = at.ctx.add_constant(at.node, "one", 1, at.ctx.type(mask).dtype)
        seen = at.real("Equal", [mask, one], role="seen")
    else:
        ids = at.input(0)
        seen = at.real("Less", [ids, ids], role="none seen")
    numbers = at.ctx.cast(at.node, seen, DType.F32, "numbers")
    axes = at.integers("along mask", [1])
    total = at.real("ReduceSum", [numbers, axes], {"keepdims": 0}, role="count")
    at.ctx.cast(at.node, total, DType.S32, "mask index", output=at.node.output(1))


_ATTRS: Final = {"epsilon": 1e-12}

_ROWS: Final[Mapping[str, Form]] = {
    "EmbedLayerNormalization": Form(
        "input_ids segment_ids? word_embedding position_embedding segment_embedding? gamma beta mask? position_ids?",
        "output mask_index? embedding_sum?",
        _embedded,
        {**_ATTRS, "mask_index_type": None},
    ),
    "QEmbedLayerNormalization": Form(
        "input_ids segment_ids? word_embedding_quant position_embedding_quant segment_embedding? gamma_quant beta_quant mask? "
        "word_embedding_scale position_embedding_scale segment_embedding_scale? gamma_scale beta_scale "
        "word_embedding_zero_point position_embedding_zero_point segment_embedding_zero_point? gamma_zero_point beta_zero_point",
        "layernorm_out mask_index_out?",
        _embedded_codes,
        _ATTRS,
    ),
}

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = handlers(MICROSOFT, _ROWS)
