"""LSTM layers in f32 by a kernel of our own (`onednn/lstm_kernel.py`), all steps in one call. It
multiplies the input of one sequence itself, that of several the library in front of it, for
all steps and directions at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...ir.ops import OPS
from ...ir.ops.recurrent import directions_of
from ...onednn.attributes import Attributes
from ...onednn.enums import Arg, DataType
from ...onednn.kernels import Kernels
from ...onednn.layouts import row_major
from ...onednn.library import Library
from ...onednn.lstm_kernel import GROUP, f32_lstm_kernel
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.recurrent_kernel import CONSTANTS, LANES
from ...onednn.strides import agree
from ...plan.types import Step
from .binding import Binder, first_accepted, need
from .program import Buffer, Owner, Tensor
from .recurrent_weights import F32, biases, by_blocks
from .values import NotLowered, Offer, Wanted

_GATES = 4

_ALONE = 1 << 18
"""Multiplications of a step of one direction up to which a thread alone is as fast as several,
which have to meet behind each step.
"""

_FEW = 8
"""Sequences up to which the weights are read no faster than they are multiplied by; the library's
products of more are as fast.
"""

_WIDE = 4
"""How many times as wide as the hidden state an input is at most that is multiplied while the steps
wait for weights: no more fits in between.
"""

_MOST_PRODUCTS = 64 << 20  # bytes of the products of the input, which the library needs in parts


def directions_apart(
    library: Library, dims: tuple[int, int, int, int], dtype: DataType
) -> MemoryDesc:
    """A result [T, D, N, H] that lies as [T, N, D*H]: what joins the directions moves nothing."""
    _, directions, batch, hidden = dims
    row = directions * hidden
    return MemoryDesc.with_strides(library, dims, dtype, (batch * row, hidden, row, 1))


# -- the steps -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class F32Layer:
    """The steps of a layer.

    Attributes:
        kernel: the functions.
        dims: of the result: steps, directions, batch, hidden.
        backwards: for each direction whether it goes backwards.
        threads: how many the kernel may use.
        weights: see `packed_weights`.
        of_x, bias: of one sequence whose input the kernel multiplies: see `packed_inputs`, and sums
            of both biases, [D, blocks, 4, 16].
        by_sequence: the products of the input lie as [N, T, D*4H], else as [T, N, D*4H].
    """

    kernel: Kernels
    dims: tuple[int, int, int, int]
    backwards: tuple[bool, ...]
    threads: int
    weights: F32
    of_x: F32 | None = None
    bias: F32 | None = None
    by_sequence: bool = False

    def __post_init__(self) -> None:
        steps, directions, batch, hidden = self.dims
        blocks = -(-hidden // LANES)
        _check(self.weights, (directions, blocks, hidden, _GATES, LANES))
        if self.of_x is not None:
            assert self.bias is not None
            _check(self.of_x, (directions, blocks, 2, self.of_x.shape[3], 2, LANES))
            _check(self.bias, (directions, blocks, _GATES, LANES))
            if batch > 1 or steps < GROUP:
                raise ValueError(f"the kernel multiplies one sequence of {GROUP} steps or more")

    def call(self, memories: Mapping[str, Memory]) -> Callable[[], int]:
        """What takes all steps; it returns 0.

        Args:
            memories: see `StepsAction`; of those without data it asks for the address in each run.
        """
        steps, directions, batch, hidden = self.dims
        row = directions * _GATES * hidden
        named = {role: memory for role, memory in memories.items() if role != "last"}
        function = "lstm_steps" if self.of_x is None else "lstm_sequence"
        work = self.kernel.work(
            function,
            **{role: _address(m) for role, m in named.items() if m.data is not None},
            weights=self.weights.ctypes.data,
            constants=CONSTANTS.ctypes.data,
            steps=steps,
            directions=directions,
            batch=batch,
            hidden=hidden,
            blocks=self.weights.shape[1],
            backwards=sum(1 << d for d, back in enumerate(self.backwards) if back),
            pre_step=row if self.by_sequence else batch * row,
            pre_row=steps * row if self.by_sequence else row,
            y_step=batch * directions * hidden,
            y_row=directions * hidden,
        )
        if self.of_x is not None:
            assert self.bias is not None
            work.of_x, work.bias = self.of_x.ctypes.data, self.bias.ctypes.data
            work.inputs = self.of_x.shape[3]
        fed = [(role, memory) for role, memory in named.items() if memory.data is None]
        run = self.kernel.call(function, work, self.threads, (self, memories))
        last, y = memories.get("last"), memories["y"].view()
        ends = [0 if back else steps - 1 for back in self.backwards]

        def call() -> int:
            for role, memory in fed:
                setattr(work, role, _address(memory))
            run()
            if last is not None:
                np.stack([y[end, d] for d, end in enumerate(ends)], out=last.view())
            return 0

        return call


def _check(array: F32, shape: tuple[int, ...]) -> None:
    if array.shape != shape or not array.flags.c_contiguous or array.dtype != np.float32:
        raise ValueError(f"weights must be f32{list(shape)}, found {list(array.shape)}")


def _address(memory: Memory) -> int:
    assert memory.data is not None
    return int(memory.data.ctypes.data)


@dataclass(frozen=True, eq=False)
class StepsAction:
    """The steps of a layer.

    Attributes:
        layer: takes them.
        args: what it reads (`first_h`, `first_c`, and either `pre` or `x`, which needs `room`) and
            writes (`y`; `c`, the cell state; and `last`, the last hidden state, where somebody
            reads it), f32; `y` lies as `directions_apart` has it, the others are row-major.
    """

    layer: F32Layer
    args: Mapping[str, Tensor | Memory]

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that it touches."""
        return [arg for arg in self.args.values() if isinstance(arg, Tensor)]

    @property
    def placed(self) -> list[Tensor]:
        """All of it."""
        return self.tensors


def packed_weights(r: F32) -> F32:
    """Weights [D, 4H, H] as the kernel reads them, [D, blocks, H, 4 gates, 16]."""
    directions, rows, hidden = r.shape
    blocks = -(-hidden // LANES)
    whole = np.zeros((directions, _GATES, blocks * LANES, hidden), np.float32)
    whole[:, :, :hidden] = r.reshape(directions, _GATES, rows // _GATES, hidden)
    parts = whole.reshape(directions, _GATES, blocks, LANES, hidden)
    return parts.transpose(0, 2, 4, 1, 3)


def packed_inputs(w: F32) -> F32:
    """Weights [D, 4H, I] as the kernel reads them, [D, blocks, 2, I, 2 gates, 16]."""
    directions, rows, inputs = w.shape
    hidden = rows // _GATES
    blocks = -(-hidden // LANES)
    whole = np.zeros((directions, _GATES, blocks * LANES, inputs), np.float32)
    whole[:, :, :hidden] = w.reshape(directions, _GATES, hidden, inputs)
    parts = whole.reshape(directions, 2, 2, blocks, LANES, inputs)
    return parts.transpose(0, 3, 1, 5, 2, 4)


# -- lowering --------------------------------------------------------------------------------------


def lstm_by_kernel(binder: Binder, step: Step) -> None:
    """An LSTM that the library's primitive can run, too.

    Raises:
        NotLowered: that is to run it: it was not compiled, the layer has codes or peepholes, or
            there is enough in a step for the library to be as fast.
    """
    kernel = _kernel_for(binder, step)
    steps, directions, batch, hidden = binder.dims(step.output)
    dims = (steps, directions, batch, hidden)
    library, constants, r = binder.library, binder.constants, need(step, "r")
    layer = F32Layer(
        kernel,
        dims,
        directions_of(OPS[step.op].known(step.params)),
        min(binder.threads, directions),
        constants.arranged(r, f"{step.op}: states", lambda: packed_weights(constants.data(r))),
    )
    names = dict(enumerate(step.outputs))
    state = row_major(library, (directions, batch, hidden), DataType.f32)
    written = {
        "y": (step.output, directions_apart(library, dims, DataType.f32)),
        "c": (names.get(2, ""), state),
        "last": (names.get(1, ""), state),
    }
    if not names.get(1):
        del written["last"]
    tensors = {
        role: _tensor(name or f"{step.name}, {role}", desc)
        for role, (name, desc) in written.items()
    }
    first = {
        f"first_{which}": _first(binder, step.arg(f"initial_{which}"), state) for which in "hc"
    }
    layer, source = _with_input(binder, step, layer)
    binder.commit_kernel(
        StepsAction(layer, {**source, **first, **tensors}),
        f"LSTM by {kernel.level}",
        {name: tensors[role] for role, (name, _) in written.items() if name},
    )


def _tensor(name: str, desc: MemoryDesc) -> Tensor:
    return Tensor(Buffer(name, Owner.ARENA, desc.size), desc)


def _with_input(
    binder: Binder, step: Step, layer: F32Layer
) -> tuple[F32Layer, dict[str, Tensor | Memory]]:
    """The layer with what it needs to know of its input, and the arguments from which it takes
    that.
    """
    library, (steps, directions, batch, hidden) = binder.library, layer.dims
    rows, by_sequence = _rows(binder, need(step, "src"))
    inputs = rows.desc.dims[1]
    if batch == 1 and steps >= GROUP and inputs <= _WIDE * hidden:
        constants, w, blocks = binder.constants, need(step, "w"), layer.weights.shape[1]
        of_x = constants.arranged(w, f"{step.op}: inputs", lambda: packed_inputs(constants.data(w)))
        sums = biases(binder, step)
        bias = np.zeros((directions, _GATES * hidden), np.float32) if sums is None else sums
        room = row_major(library, (directions, 2, blocks, GROUP * _GATES * LANES), DataType.f32)
        return replace(layer, of_x=of_x, bias=by_blocks(bias)), {
            "x": binder.fetch(rows),
            "room": _tensor(f"{step.name}, room", room),
        }
    desc = row_major(library, (steps * batch, directions * _GATES * hidden), DataType.f32)
    products = _tensor(f"{step.name}, products", desc)
    binder.commit_part(_product(binder, step, rows, desc), products)
    return replace(layer, by_sequence=by_sequence), {"pre": products}


def _kernel_for(binder: Binder, step: Step) -> Kernels:
    """The kernel, where it is to run a layer."""
    kernel = f32_lstm_kernel(binder.library)
    if kernel is None:
        raise NotLowered("the kernel of LSTM was not compiled, or needs AVX2")
    if {binder.dtype(name) for name in (need(step, "src"), step.output)} != {DataType.f32}:
        raise NotLowered("the kernel of LSTM takes f32")
    if step.arg("p") is not None:
        raise NotLowered("the kernel of LSTM has no peepholes")
    weights = (need(step, "w"), need(step, "r"), step.arg("b"))
    if not all(name is None or binder.is_constant(name) for name in weights):
        raise NotLowered("its weights are computed at run time")
    steps, directions, batch, hidden = binder.dims(step.output)
    if batch > _FEW:
        raise NotLowered("the library multiplies many sequences as fast")
    if directions < binder.threads and batch * hidden * _GATES * hidden > _ALONE:
        raise NotLowered("a step is work for several threads")
    if 4 * steps * batch * directions * _GATES * hidden > _MOST_PRODUCTS:
        raise NotLowered("the products of its input take much memory")
    return kernel


def _rows(binder: Binder, source: str) -> tuple[Wanted, bool]:
    """The input as rows [T*N, I], or as [N*T, I] where it lies so, and whether it does."""
    library, lies = binder.library, binder.desc(source)
    steps, batch, inputs = binder.dims(source)
    flat = row_major(library, (steps * batch, inputs), DataType.f32)
    for by_sequence, apart in (
        (False, (batch * inputs, inputs, 1)),
        (True, (inputs, steps * inputs, 1)),
    ):
        if lies.is_plain and not lies.offset and agree(lies.dims, lies.strides, apart):
            return Wanted(binder.flattened(source, lies).value, flat), by_sequence
    return Wanted(source, flat), False


def _product(binder: Binder, step: Step, rows: Wanted, pre: MemoryDesc) -> Offer:
    """The products of the input with the weights of all gates and directions, and biases."""
    library, columns = binder.library, pre.dims[1]
    weights = MemoryDesc.any(library, (rows.desc.dims[1], columns), DataType.f32)
    sums = biases(binder, step)
    args: dict[int, Wanted | Memory] = {Arg.SRC: rows}
    if sums is not None:
        bias = row_major(library, (1, columns), DataType.f32)
        args[Arg.BIAS] = Memory(binder.engine, bias, sums.reshape(bias.dims))

    def attempt(bias: MemoryDesc | None) -> Offer:
        return Offer(binder.describe(step, "matmul", rows.desc, weights, bias, pre), args)

    offer = first_accepted(binder, (args[Arg.BIAS].desc if Arg.BIAS in args else None,), attempt)
    name = need(step, "w")
    data = binder.constants.data(name)
    packed = binder.constants.packed(
        name,
        f"{step.op}: inputs in front of gates of all directions",
        data.reshape(columns, -1).T,
        offer.desc.weights_md(),
        Attributes(),
    )
    return offer.reading({Arg.WEIGHTS: packed})


def _first(binder: Binder, name: str | None, state: MemoryDesc) -> Tensor | Memory:
    """A state in front of the first step; zeros where the layer is given none."""
    if name is None:
        return Memory(binder.engine, state, np.zeros(state.dims, np.float32))
    return binder.fetch(Wanted(name, state))
