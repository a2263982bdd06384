"""Nothing compares the shapes of two values by `==`, to which one `?` equals another:
`dims.same_shape` and `dims.fits` know better.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import fqfuse
from fqfuse.ir.ops import dims

ROOT = Path(fqfuse.__file__).parent

ARRAYS = "shapes of arrays, which are numbers"
WORDS = "the words must be those of the value that is replaced; that it has the same shape follows from what the operations are"

ALLOWED = {
    ("plan/verify_shapes.py", "stated.shape != expected.shape"): "both are the words for one value",
    ("ir/ops/spec.py", "a.shape != b.shape"): ARRAYS,
    ("runtime/evaluator.py", "indices.shape != updates.shape"): ARRAYS,
    ("passes/fold_constants.py", "made.shape == given.shape"): WORDS,
    ("passes/move_reshape.py", "graph.type(value) == graph.type(old.output)"): WORDS,
    ("passes/nest_concat.py", "graph.type(node.input) == graph.type(node.output)"): WORDS,
    (
        "passes/pad_into_convolution.py",
        "graph.type(new.output) != graph.type(old.output)",
    ): WORDS,
    ("passes/recognize_shuffle.py", "graph.type(value) == graph.type(last.output)"): WORDS,
    ("passes/recognize_shuffle.py", "graph.type(made.output) == graph.type(last.output)"): WORDS,
}
"""(file, comparison) -> why it is one of words, or of numbers."""

FOLDERS = ("ir", "frontend", "passes", "composer", "plan", "runtime")


def compared(tree: ast.AST) -> Iterator[str]:
    """Comparisons of two shapes, of dimensions of two shapes, or of two types."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            continue
        left, right = node.left, node.comparators[0]
        if (_is_shape(left) and _is_shape(right)) or (_is_type(left) and _is_type(right)):
            yield ast.unparse(node)


def _is_shape(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return _is_shape(node.value)
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _is_type(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "type"
    )


def test_no_shapes_are_compared_by_words() -> None:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 100
    found = {
        (str(path.relative_to(ROOT)), each)
        for path in files
        for each in compared(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == ALLOWED.keys()


def test_an_unknown_size_is_equal_to_nothing() -> None:
    known, unknown = ("N", 4, "2*S"), ("N", dims.UNKNOWN, "2*S")
    assert dims.same_shape(known, ("N", 4, "S+S"))
    assert not dims.same_shape(unknown, unknown)
    assert not dims.same_shape(None, None)
    assert not dims.same_shape(known, known[1:])


def test_what_fits() -> None:
    shape = ("N", 4, dims.UNKNOWN)
    for operand in [(), (1,), (4, 1), ("N", 4, 1), (1, 1, 1), (1, 4, 1)]:
        assert dims.fits(operand, shape), operand
    for operand in [(dims.UNKNOWN,), (3, 1), ("M", 4, 1), (1, 1, 1, 1), (dims.UNKNOWN, 4, 1), None]:
        assert not dims.fits(operand, shape), operand
    assert not dims.fits((1,), None)
