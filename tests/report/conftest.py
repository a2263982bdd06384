"""What the report's tests share: rendering at a width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fqfuse.report.layout import Layout


@pytest.fixture
def rendered():
    """rendered(renderable, layout) -> the lines that a terminal of that width, or a pipe, gets; no
    colours.
    """

    def render(content: object, layout: Layout) -> list[str]:
        buffer = io.StringIO()
        # As a stranger's console would print it: markup and emoji are on, and must find nothing to
        # work on.
        Console(file=buffer, width=layout.width or 1 << 16, color_system=None).print(content)
        return [line.rstrip() for line in buffer.getvalue().splitlines()]

    return render
