"""The op table: one row an op, read by the frontend, the verifier, the composer and the runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .spec import OpSpec

__all__ = ["OPS"]

_ROWS: tuple[OpSpec, ...] = ()

OPS: Mapping[str, OpSpec] = MappingProxyType({row.name: row for row in _ROWS})
