"""The plan: frozen steps of fused primitives, ready to be run, saved or explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from types import MappingProxyType
from typing import Any

from ..errors import InvalidInput, printable
from ..ir.constants import Constants, as_held
from ..ir.decision import Decision, Fate, Quantizer
from ..ir.ops.recurrent import DYNAMIC
from ..ir.ops.spec import Array, Attr, same_bits
from ..ir.types import DType, TensorType
from .arguments import SOURCE_BITS
from .attributes import PrimitiveAttr

_WEIGHTS = frozenset({"weights", "w", "r"})  # of a product; of a layer's input and hidden state

_NO_SIZES: Mapping[str, int] = MappingProxyType({})
_FEW = 4  # post-ops in a repr
_SHORT = 80  # characters of a name


MOST_DEPTH = 4
"""How many bodies of If, Loop and Scan with plans of their own may lie in each other."""


@dataclass(frozen=True)
class Bodies:
    """What an If, Loop or Scan runs: plans of their own.

    Each is given, in this order: of a Loop the number of the trip and the condition, the states, of a
    Scan a row of each scanned value, then all values that the step reads besides. It returns, in this
    order: of a Loop the condition of the next trip, the states, and what the trips' rows are stacked
    of; that of an If its outputs.

    Attributes:
        plans: of an If the one for a condition that holds, and the other one; else one.
        states: how many values each trip takes from the one before.
        scanned: how many values a Scan takes a row of in each trip.
    """

    plans: tuple[Plan, ...]
    states: int = 0
    scanned: int = 0


@dataclass(frozen=True)
class Step:
    """One primitive.

    Attributes:
        name: unique in the plan.
        primitive: the field's name (`convolution`, `matmul`, `pooling`, `binary`, `eltwise`,
            `concat`, `reorder`, `softmax` ...), or `onnx.<Op>` for a step that runs as the ONNX
            operator itself (data movement in any type, and what no primitive covers).
        op: row of the op table that gives the step its shape and, without attributes, its meaning
            (`Conv`, `MatMul`, `Add` ...); `Identity` for reorder; for primitive `eltwise` a row
            with that algorithm or `Identity`; `Onnx` for a foreign op.
        args: (role, value) in order. Roles: `src`, `weights`, `bias`; `src_0`, `src_1` ... for
            binary, concat, sum; the row's input names for `onnx.<Op>` (absent optional inputs are
            left out).
        outputs: values written, in order ('' for an absent one).
        params: what the primitive computes: the row's attributes, and for `eltwise` and `binary`
            oneDNN's `algorithm`, `alpha`, `beta`.
        attr: scales, zero points, post-ops.
        origin: names of the nodes in the user's model that it replaces.
        bodies: plans of an If, Loop or Scan; None where ONNX's evaluator runs the node as it is.
    """

    name: str
    primitive: str
    op: str
    args: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]
    params: Mapping[str, Attr] = field(default_factory=dict)
    attr: PrimitiveAttr = field(default_factory=PrimitiveAttr)
    origin: tuple[str, ...] = ()
    bodies: Bodies | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Every value read: the arguments, then the operands of post-ops."""
        return tuple(value for _, value in self.args) + self.attr.operands

    @property
    def output(self) -> str:
        """The first output."""
        return self.outputs[0]

    def arg(self, role: str) -> str | None:
        """The value in a role, or None."""
        return next((value for name, value in self.args if name == role), None)

    def __repr__(self) -> str:
        """One line; `print_plan` has all of it."""
        kind = (
            self.primitive
            if self.primitive == f"onnx.{self.op}"
            else f"{self.primitive}<{self.op}>"
        )
        fused = f" with {', '.join(op.kind for op in self.attr.post_ops[:_FEW])}"
        more = len(self.attr.post_ops) - _FEW
        fused = f"{fused} and {more:,} more" if more > 0 else fused if self.attr.post_ops else ""
        return f"Step '{short_name(self.name)}': {short_name(kind)}{fused}"


@dataclass(frozen=True, eq=False)
class Plan:
    """A compiled model. Frozen: a session binds buffers, the plan never changes.

    `findings()`, `steps_table()`, `fates()` and `decisions()` tell of it as lists of dictionaries,
    which `pandas.DataFrame` takes; a notebook shows the verdict. A plan can be copied and pickled.
    What was unpickled was not verified: `save_plan` and `load_plan` do that.

    Attributes:
        name: of the model.
        target: `onednn-v3`, `onednn-v2` or `unified`: which order the attributes have.
        inputs, outputs: names of values, in the model's order.
        values: the type of every value that is not a constant, quantization included.
        constants: data of constant values (weights in int8, biases, operands of post-ops).
        steps: in execution order.
        quantizers, fate_records, decision_records: what the model held, where each half went, and
            what every rule did.
        options: how it was compiled, for people and for reproducing it.
    """

    name: str
    target: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, TensorType]
    constants: Mapping[str, Array]
    steps: tuple[Step, ...]
    quantizers: Mapping[str, Quantizer] = field(default_factory=dict)
    fate_records: tuple[Fate, ...] = ()
    decision_records: tuple[Decision, ...] = ()
    options: Mapping[str, Attr] = field(default_factory=dict)

    @property
    def within(self) -> tuple[tuple[str, Plan], ...]:
        """The plans of the bodies of If, Loop and Scan, each with the name of its step, those that lie
        in them as well.
        """
        return tuple(
            found
            for step in self.steps
            if step.bodies is not None
            for plan in step.bodies.plans
            for found in ((step.name, plan), *plan.within)
        )

    def __post_init__(self) -> None:
        if not isinstance(self.constants, Constants):
            object.__setattr__(self, "constants", Constants(self.constants))

    def find(self, value: str | None) -> TensorType | None:
        """The type of a value or constant; None where the plan does not say it."""
        if not value or value in self.values:
            return self.values[value] if value else None
        data = as_held(self.constants).get(value)
        return None if data is None else TensorType(DType.from_numpy(data.dtype), data.shape)

    def type(self, value: str) -> TensorType:
        """The type of a value or constant (KeyError when there is none)."""
        found = self.find(value)
        if found is None:
            raise KeyError(value)
        return found

    def findings(self, *, sizes: Mapping[str, int] = _NO_SIZES) -> list[dict[str, Any]]:
        """What costs most or makes numbers wrong, and what to change, the most important first.

        Args:
            sizes: of what the model leaves open, such as `{"sequence_length": 128}`; others count
                as 1.

        Raises:
            InvalidInput: there is no such size.
        """
        return list(_explained("findings")(self, sizes=sizes))

    def steps_table(self, *, sizes: Mapping[str, int] = _NO_SIZES) -> list[dict[str, Any]]:
        """One row a step: `index`, `primitive`, `what`, `types`, `fused`, `origin`, `int8`, `macs`,
        `bytes`, `ms` (estimated) and `findings` (codes).

        Args:
            sizes: as for `findings`.

        Raises:
            InvalidInput: there is no such size.
        """
        return list(_explained("steps_table")(self, sizes=sizes))

    def fates(self) -> list[dict[str, Any]]:
        """One row a fate: `quantizer`, `form`, `half`, `fate`, `step`, `consumer`, `reason`."""
        return list(_explained("fates_table")(self))

    def decisions(self) -> list[dict[str, Any]]:
        """One row a decision: `rule`, `subject`, `outcome`, `reason`, `expected`, `found`, `hint`,
        `weighed`.
        """
        return list(_explained("decisions_table")(self))

    def to_html(
        self,
        *,
        title: str = "",
        sizes: Mapping[str, int] = _NO_SIZES,
        times: Mapping[int, float] | None = None,
        errors: Mapping[int, float] | None = None,
    ) -> str:
        """The page of `fqfuse inspect --html`: verdict, graph, tables, and the story of each step.

        Args:
            title: what the page is called; the plan's name where there is none.
            sizes: as for `findings`.
            times: measured milliseconds, by the index of the step.
            errors: measured signal to quantization noise in dB, likewise.

        Raises:
            InvalidInput: there is no such size, or no such step.
        """
        page = _explained("to_html")(self, title=title, sizes=sizes, times=times, errors=errors)
        return str(page)

    def __repr__(self) -> str:
        """One line; `print_plan` has all of it."""
        sizes = [d.nbytes for d in as_held(self.constants).values() if d.dtype.kind != "O"]
        int8 = sum(runs_in_int8(self, step) for step in self.steps)
        return (
            f"Plan '{short_name(self.name)}' for {short_name(self.target)}: "
            f"{len(self.steps):,} steps, {int8:,} in int8; {len(self.quantizers):,} quantizers; "
            f"{len(self.constants):,} constants of {sum(sizes):,} bytes"
        )

    def _repr_html_(self) -> str:
        return str(_explained("notebook_html")(self))

    def __getstate__(self) -> dict[str, object]:
        """What is pickled and copied: mapping proxies are neither."""
        told = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            name: dict(value) if isinstance(value, MappingProxyType) else value
            for name, value in told.items()
        }

    def __setstate__(self, state: Mapping[str, object]) -> None:
        for name, value in state.items():
            told = MappingProxyType(value) if isinstance(value, dict) else value
            object.__setattr__(self, name, told)

    def __eq__(self, other: object) -> bool:
        """Equal in every field; constants bit for bit."""
        if not isinstance(other, Plan):
            return NotImplemented
        plain = (f.name for f in fields(self) if f.name != "constants")
        return (
            all(getattr(self, name) == getattr(other, name) for name in plain)
            and self.constants.keys() == other.constants.keys()
            and all(same_bits(data, other.constants[name]) for name, data in self.constants.items())
        )

    __hash__ = None  # type: ignore[assignment]  # it holds mappings


def short_name(name: str) -> str:
    """A name of the model as one line of a repr has it: printable, and at most 80 characters."""
    text = printable(name)
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


def _explained(name: str) -> Callable[..., Any]:
    """A function of the package that tells of plans. Methods go through the package's own lazy
    names, because rooms below know none above them.
    """
    function: Callable[..., Any] = getattr(import_module("fqfuse"), name)
    return function


def check_is_plan(plan: object) -> None:
    """Refuses what is no plan.

    Raises:
        InvalidInput: it is something else.
    """
    if not isinstance(plan, Plan):
        raise InvalidInput(
            f"a {type(plan).__name__} is no plan",
            hint="give what fqfuse.compile or fqfuse.load_plan returned",
        )


def codes_source(step: Step) -> bool:
    """True of a product with packed weights that makes codes of its f32 source in each run."""
    return bool(step.params.get(SOURCE_BITS, 0))


def runs_in_int8(plan: Plan, step: Step) -> bool:
    """True when a step computes on 8-bit codes: all its sources, and its weights where it has some,
    are of type u8 or s8.

    A reorder never does: it only converts. Of a step that runs as the ONNX operator itself the
    first input decides. Where a step makes codes of an f32 source in each run, as it may with packed
    weights and as DynamicQuantizeLSTM does, the weights decide.
    """
    if step.primitive == "reorder" or not step.args:
        return False
    if codes_source(step):
        return True
    by_sources = step.op != DYNAMIC
    roles = [
        value
        for role, value in step.args
        if role in _WEIGHTS or (by_sources and role.startswith("src"))
    ]
    types = map(plan.find, roles or [step.args[0][1]])
    return all(type_ is not None and type_.dtype.is_code for type_ in types)
