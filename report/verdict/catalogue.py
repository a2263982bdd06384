"""The kinds of findings: what each looks like, why it costs, and what to change.

A kind has a text for every quantizer that can mend it, in the words of its options; where none can,
`no_remedy` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .kind import Kind
from .kinds_of_numbers import ABOUT_NUMBERS
from .kinds_of_time import ABOUT_TIME

CATALOGUE: Mapping[str, Kind] = MappingProxyType(
    {kind.code: kind for kind in (*ABOUT_NUMBERS, *ABOUT_TIME)}
)
"""Code -> kind; first what makes numbers wrong, then what takes time."""
