"""Concatenation, with a scale for each source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.ops.spec import Array
from .base import (
    Binding,
    Kernel,
    Layout,
    Operand,
    Recorder,
    Result,
    Tasks,
    Tile,
    Values,
    nbytes,
    tiles,
)
from .elementwise import common_layout, magnitude
from .epilogue import Anchor, Epilogue

__all__ = ["Concat"]

_TILE = 1 << 16


@dataclass(frozen=True)
class _Piece:
    """A tile of one source and its place in the destination; no epilogue where the codes are copied
    as they are.
    """

    source: Operand
    tile: Tile
    place: Tile
    epilogue: Epilogue | None


class Concat(Kernel):
    """`concat` along params' `axis`: dst = saturate(round(src_i * scale_i)); a copy where the type
    stays and the scale is 1.
    """

    def __init__(self, binding: Binding) -> None:
        sources = self._sources(binding)
        shape = binding.shapes[0]
        axis = int(binding.number("axis", 0)) % len(shape)
        layout = common_layout(sources, len(shape))
        result = Result(binding.dtypes[0], shape, layout)
        self.results = (result,)
        self._layout = layout
        physical_axis = (
            axis if layout is Layout.PLAIN else layout.physical_shape(range(len(shape))).index(axis)
        )
        self._pieces: list[_Piece] = []
        offset = 0
        for index, source in enumerate(sources):
            epilogue = self._epilogue(binding, result, source, f"src_{index}")
            for tile in tiles(layout.physical_shape(source.shape), _TILE):
                moved = slice(tile[physical_axis].start + offset, tile[physical_axis].stop + offset)
                place = (*tile[:physical_axis], moved, *tile[physical_axis + 1 :])
                self._pieces.append(_Piece(source, tile, place, epilogue))
                cells = math.prod(c.stop - c.start for c in tile)
                if epilogue is not None:
                    self.local_bytes = max(
                        self.local_bytes,
                        nbytes((cells,), np.float32) + epilogue.scratch_bytes(cells),
                    )
            offset += source.shape[axis]

    @staticmethod
    def _sources(binding: Binding) -> list[Operand]:
        found: list[Operand] = []
        while (operand := binding.arg(f"src_{len(found)}")) is not None:
            found.append(operand)
        return found

    @staticmethod
    def _epilogue(binding: Binding, result: Result, source: Operand, role: str) -> Epilogue | None:
        scale = binding.step.attr.scales.get(role)
        plain = scale is None or scale.values == (1.0,)
        attr = binding.step.attr
        if (
            plain
            and source.dtype is result.dtype
            and not attr.post_ops
            and attr.output_scales is None
            and "dst" not in attr.scales
        ):
            return None
        factors = () if scale is None else (scale.array.reshape(()),)
        return Epilogue(binding, result, Anchor(magnitude=magnitude(source), scales=factors))

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """Tiles of the sources."""
        out = self._layout.physical(outputs[0])
        sources = {
            p.source.name: self._layout.physical(p.source.read(values)) for p in self._pieces
        }
        operands = {
            id(p.epilogue): p.epilogue.operands(values)
            for p in self._pieces
            if p.epilogue is not None
        }

        def task(index: int, record: Recorder) -> None:
            piece = self._pieces[index]
            part = sources[piece.source.name][piece.tile]
            if piece.epilogue is None:
                record(np.copyto, out[piece.place], part)
                return
            y = record.take(part.shape, np.float32)
            record.copy(y, part)
            piece.epilogue.record(y, out, piece.place, operands[id(piece.epilogue)], record)

        return Tasks(len(self._pieces), task)
