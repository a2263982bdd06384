"""The text form of graphs: `parse_graph(print_graph(graph)) == graph`. docs/text-form.md has the
grammar, `text_*.py` the parts.
"""

from __future__ import annotations

from .text_cursor import TextLimits
from .text_parse import parse_graph
from .text_print import DataForm, print_graph

__all__ = ["DataForm", "TextLimits", "parse_graph", "print_graph"]
