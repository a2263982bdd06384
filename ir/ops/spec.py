"""What a row of the op table says, and the errors that its functions may raise."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..algorithms import BINARY, ELTWISE, BinaryAlgorithm, EltwiseAlgorithm
from ..types import DType, Quantization, TensorType

Array = npt.NDArray[np.generic]
Attr = (
    int | float | str | bool | bytes | DType | Quantization | TensorType | tuple["Attr", ...] | None
)
"""What an attribute may hold: plain, immutable, comparable. Arrays are constants of the graph,
never attributes.
"""

Attrs = Mapping[str, Attr]


SWITCHES = frozenset(
    {
        "allowzero",
        "antialias",
        "ceil_mode",
        "count_include_pad",
        "exclude_outside",
        "exclusive",
        "input_forget",
        "keepdims",
        "largest",
        "layout",
        "linear_before_reset",
        "noop_with_empty_axes",
        "reverse",
        "select_last_index",
        "training_mode",
        "transA",
        "transB",
    }
)
"""Attributes that ONNX writes as 0 or 1; some are looked at while a row computes, and not while it
gives types.
"""


class Required(enum.Enum):
    """Marks an attribute without a default."""

    REQUIRED = "required"


REQUIRED = Required.REQUIRED


class Trait(enum.Enum):
    """What is asked of an op instead of its name. First what it computes, which tests hold each row
    to; then what becomes of it.
    """

    __hash__ = object.__hash__  # Enum's is a function in Python, of its name

    ELEMENTWISE = "elementwise"
    """Output element i depends on element i of each (broadcast) input alone."""
    LAYOUT_ONLY = "layout_only"
    """Only moves, copies or drops elements of its first input: commutes with every per-tensor
    elementwise function.
    """
    RESHAPES = "reshapes"
    """Gives the elements of its first input in their order, under another shape."""
    SELECTS = "selects"
    """Every output element is one element of the first input, chosen by order (max pool): commutes
    with increasing functions.
    """
    JOINS = "joins"
    """Puts its inputs side by side: every output element is one element of some input, and the
    shapes decide which.
    """
    SCALE_COMMUTING = "scale_commuting"
    """op(s*x) = s*op(x) for every s > 0."""
    COMMUTATIVE = "commutative"
    """Its two inputs may be swapped."""
    PRODUCT = "product"
    """Sums products of elements of its first input with elements of its second, the weights."""
    AVERAGES = "averages"
    """Every output element is the mean of a window of the first input."""
    KEEPS_ZERO = "keeps_zero"
    """Gives 0 of zeros, where it adds nothing, and of numbers next to 0 such numbers; what goes by
    element or moves need not say so.
    """
    TELLS_ZERO = "tells_zero"
    """Tells 0 from the numbers next to it: infinity, or another integer or truth value; ask
    `OpSpec.tells_zero`, algorithms do, too.
    """
    JUMPS = "jumps"
    """Tells some number from those next to it, 0 or another, all of them finite: as a rounding does,
    and a comparison; ask `OpSpec.jumps`. A quantizer need not say so.
    """
    NAN_BELOW_ZERO = "nan_below_zero"
    """Gives NaN of numbers below 0, or may."""

    QUANTIZER = "quantizer"
    """A quantizer or a half of one: a node of it bears the names of those in the model."""
    POST_OP = "post_op"
    """A chain of post-ops has a form for it, as for the eltwise and binary algorithms."""
    READS_CODES = "reads_codes"
    """Its primitive reads 8-bit codes, and decodes them itself."""


class Effort(enum.Enum):
    """What a row's evaluation in NumPy takes for each element of the largest tensor that it reads or
    writes: what the verdict on a plan prices steps by that no primitive computes.
    """

    NONE = "none"
    """No element is looked at: views, and questions about sizes."""
    PASSES = "passes"
    """A copy, or a few loops of vector instructions over all elements."""
    LOOPS = "loops"
    """Many such loops, or one that has no vector instructions."""
    FUNCTIONS = "functions"
    """An elementary function without vector instructions."""
    SERIES = "series"
    """Dozens of loops in f64, or a sort."""
    PYTHON = "python"
    """Python's own loop over the elements; no row of the op table has it."""


class ShapeError(ValueError):
    """Raised by `infer`: the inputs do not fit the op. The message says what was expected and what
    was found.
    """


class NotCovered(ShapeError):
    """Raised by `infer`: ONNX allows this use of the op, but the row does not cover it; import it
    as a foreign op (`Onnx`).
    """


Infer = Callable[
    [Sequence[TensorType | None], Attrs, Sequence[Array | None]], tuple[TensorType, ...]
]
"""(types, attributes, constant data of each input or None) -> types of the outputs. Absent optional
inputs are None.

Raises:
    ShapeError: the inputs do not fit together.
"""

Evaluate = Callable[[Sequence[Array | None], Attrs], tuple[Array, ...]]
"""(arrays, attributes) -> outputs. The f32 NumPy meaning of the op: constant folding, the reference
run and the runtime share it.
"""


UNCOMPUTABLE = (ValueError, LookupError, ArithmeticError, TypeError, MemoryError)
"""What `evaluate` raises on data that the op does not take: an index out of range, say."""


@dataclass(frozen=True)
class Param:
    """One input of an op: its name, and whether it may be absent or repeat (the last one only)."""

    name: str
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True)
class OpSpec:
    """A row of the op table. An op means what ONNX says of the op with that name at its newest
    opset, unless `doc` says more.

    Attributes:
        name: the op's name in the graph.
        doc: one line: what it computes.
        inputs: its inputs in order.
        attrs: name -> default, or REQUIRED.
        infer: types of the outputs from those of the inputs.
        evaluate: the f32 NumPy meaning; None only of the op `Onnx`, which a caller of the
            interpreter supplies.
        outputs: names of the outputs (trailing ones may be absent in a node; the last one of Split
            and of `Onnx` repeats).
        traits: what passes may rely on.
        effort: what `evaluate` takes.
        onnx: True when ONNX has an op of that name in its default domain, so that the frontend
            imports it by this row.
        primitive: name of the primitive that a step of this op alone is (`convolution`, `pooling`
            ...); None: `onnx.<Op>`.
        eltwise: oneDNN's eltwise algorithm (`relu`, `gelu_erf` ..., see `ir/algorithms.py`) when
            the op is one of them.
        parameters: the algorithm's alpha and beta: a number, or the attribute that holds it; 0
            where nothing stands.
        binary: oneDNN's binary algorithm (`add`, `mul`, `max` ...) when the op is one of them.
    """

    name: str
    doc: str
    inputs: tuple[Param, ...]
    attrs: Mapping[str, Attr | Required]
    infer: Infer
    evaluate: Evaluate | None
    outputs: tuple[str, ...] = ("y",)
    traits: frozenset[Trait] = field(default_factory=frozenset)
    effort: Effort = Effort.PASSES
    onnx: bool = True
    primitive: str | None = None
    eltwise: str | None = None
    parameters: tuple[str | float, ...] = ()
    binary: str | None = None

    @property
    def algorithm(self) -> EltwiseAlgorithm | BinaryAlgorithm | None:
        """The row of oneDNN's algorithm that it is one of."""
        if self.eltwise is not None:
            return ELTWISE[self.eltwise]
        return None if self.binary is None else BINARY[self.binary]

    @property
    def tells_zero(self) -> bool:
        """True when it tells 0 from the numbers next to it, or the algorithm does that it is
        computed by.
        """
        found = self.algorithm
        return Trait.TELLS_ZERO in self.traits or (found is not None and found.tells_zero)

    @property
    def jumps(self) -> bool:
        """True when it tells some number from those next to it, or its algorithm does."""
        found = self.algorithm
        return Trait.JUMPS in self.traits or (found is not None and found.jumps)

    @property
    def is_post_op(self) -> bool:
        """True when a chain of post-ops has a form for it."""
        return self.eltwise is not None or self.binary is not None or Trait.POST_OP in self.traits

    def complete(self, attrs: Attrs) -> dict[str, Attr]:
        """The attributes with defaults filled in, in the order of the row.

        Raises:
            ShapeError: an attribute is unknown, a required one is missing, or a switch is neither 0
                nor 1.
        """
        unknown = attrs.keys() - self.attrs.keys()
        if unknown:
            raise ShapeError(f"{self.name} has no attribute {', '.join(sorted(unknown))}")
        result: dict[str, Attr] = {}
        for name, default in self.attrs.items():
            if name in attrs:
                result[name] = attrs[name]
                if name in SWITCHES and attrs[name] not in (0, 1):
                    raise ShapeError(f"attribute {name} must be 0 or 1, found {attrs[name]!r}")
            elif default is REQUIRED or isinstance(default, Required):
                raise ShapeError(f"{self.name} needs the attribute {name}")
            else:
                result[name] = default
        return result

    def known(self, attrs: Attrs) -> dict[str, Attr]:
        """`complete` of those that the row has: a step of a plan has further ones."""
        return self.complete({name: value for name, value in attrs.items() if name in self.attrs})


def same_bits(a: Array, b: Array) -> bool:
    """True when the arrays have one type, one shape and the same bits (NaN equals itself, 0 and -0
    differ).
    """
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.tolist() == b.tolist() if a.dtype.kind == "O" else a.tobytes() == b.tobytes()
