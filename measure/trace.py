"""A profile in Chrome's trace event form, for chrome://tracing, Perfetto and speedscope."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def trace_bytes(model: str, cases: Sequence[Mapping[str, Any]]) -> bytes:
    """The run of each case whose time is the median, as one JSON document: an event a step, in
    microseconds, with the names of the model's nodes.

    Args:
        model: its name.
        cases: of what `bench` returns; each becomes a thread of its own, beginning at 0.
    """
    events: list[dict[str, Any]] = [_named("process_name", 0, f"fqfuse {model}")]
    for number, case in enumerate(cases, 1):
        sizes = ", ".join(f"{name}={size}" for name, size in case["sizes"].items())
        events.append(_named("thread_name", number, sizes or "steps"))
        events += _events(case, number)
    document = {"traceEvents": events, "displayTimeUnit": "ms"}
    return json.dumps(document, ensure_ascii=True, allow_nan=False).encode()


def _named(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}


def _events(case: Mapping[str, Any], thread: int) -> list[dict[str, Any]]:
    line = case["profile"]["timeline"]
    whole = {"name": "run", "cat": "run", "ph": "X", "pid": 1, "tid": thread}
    events = [
        {
            **whole,
            "ts": 0.0,
            "dur": round(line["ms"] * 1e3, 3),
            "args": {"sizes": dict(case["sizes"])},
        }
    ]
    start = line["lead_ms"]
    for step, spent in zip(case["steps"], line["steps_ms"], strict=True):
        if step["runtime"] != "view":
            events.append(
                {
                    "name": step["layers"][0] if step["layers"] else step["name"],
                    "cat": step["runtime"],
                    "ph": "X",
                    "pid": 1,
                    "tid": thread,
                    "ts": round(start * 1e3, 3),  # whole nanoseconds
                    "dur": round(spent * 1e3, 3),
                    "args": {
                        name: step[name]
                        for name in (
                            "index",
                            "what",
                            "implementation",
                            "reason",
                            "layers",
                            "limit_ms",
                        )
                    },
                }
            )
        start += spent
    return events
