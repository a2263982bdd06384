"""What `fqfuse export` says of the model that it wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType

from .layout import heading
from .lines import WIDTH, labelled
from .notation import count_text, cut_names, title_text

_FEW = 3
_LABEL = 11
_ROOM = 50  # of a name


def export_report(
    name: str,
    form: str,
    written: str,
    operators: Mapping[str, int],
    notes: Sequence[tuple[str, str]],
    products: Sequence[tuple[str, str]] = (),
    operations: Sequence[tuple[str, str]] = (),
    added: Sequence[str] = (),
) -> RenderableType:
    """Where the model went, its operators, and what in it peers compute in f32.

    Args:
        name: of the model's file.
        form: `qdq` or `qoperator`.
        written: the new file, with its size.
        operators: operator -> how many nodes, the most frequent first.
        notes: (quantizer, why peers compute it in f32).
        products: (convolution or matmul, why ONNX Runtime computes it in f32).
        operations: (other operation, likewise).
        added: nodes with a quantizer that the model has not.
    """
    counted = ", ".join(f"{count:,} {operator}" for operator, count in operators.items())
    rows = [("file", written), ("operators", counted)]
    if added:
        rows.append(("quantizers", _added(added)))
    for what, entries in (("quantizer", notes), ("product", products), ("operation", operations)):
        rows += [("in f32", told) for told in _told(what, entries)]
    lines = [
        line
        for label, text in rows
        for line in labelled(label, text, WIDTH, 2, _LABEL, whole_words=True)
    ]
    return Group(heading(title_text(name), f"exported as {form}"), *lines)


def _added(nodes: Sequence[str]) -> str:
    return (
        f"{count_text(len(nodes), 'quantizer')} that the model has not, or has with a scale and a range for each channel, by the given data"
        f" ({_some(nodes)}): fqfuse compare says what they cost"
    )


def _some(nodes: Sequence[str]) -> str:
    shown = ", ".join(cut_names(nodes[:_FEW], _ROOM))
    return shown + (f" and {len(nodes) - _FEW:,} more: see --json" if len(nodes) > _FEW else "")


def _told(what: str, entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A sentence for each reason, with the nodes."""
    reasons: dict[str, list[str]] = {}
    for node, why in entries:
        reasons.setdefault(why, []).append(node)
    for why, nodes in reasons.items():
        yield f"{count_text(len(nodes), what)}: {why} ({_some(nodes)})"
