"""From question to repaired file: remedies that need no training, each tried, measured, and kept only if it helps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from os import PathLike
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler import compile as compile_model
from ..errors import FqfuseError, InvalidInput, UnsupportedOp
from ..exporter import mending
from ..exporter.borders import floats_at_borders
from ..exporter.calibrated import Ranges, measured
from ..exporter.file import save_model
from ..exporting import refuse_over, split_graph, written
from ..frontend import DEFAULT, ModelSource, graph_from_onnx, read_model
from ..frontend.parts import model_bytes
from ..inference import InferenceSession
from ..ir.graph import Graph
from ..ir.ops.spec import Array
from ..plan.open_sizes import NO_SIZES, sizes_of_shapes
from ..plan.types import Plan
from ..report.verdict.catalogue import CATALOGUE
from ..report.verdict.findings import Finding, verdict_of
from ..report.verdict.kind import Gain
from ..report.verdict.machine import this_machine
from .compare import Comparison, compared, read_models
from .data import Samples, given, listed
from .layers import Cause
from .matching import as_quantized
from .parts import Whole
from .peers import PEERS, peer
from .remedy import fixed
from .repair import Repair, Score, Step, as_data
from .simulation import Subject, outputs_of, samples_for, subject_of
from .suggest import NOTABLE, suggestion_of

HERE = "here"
TARGETS = (HERE, *PEERS)
"""For which runtime a file is repaired."""

_GOOD = 25.0  # dB: close to f32
_MUCH = 3.0  # dB, half of the noise: what leaving int8, or another range, must gain
_LOST = 1.0  # dB: less may be ties of rounding
_FASTER = 0.93  # of the time: more is within what runs differ by
_SECONDS = 0.4  # in which runs are timed
_RUNS = 25
_MOSTLY = 0.75  # of the turns, in which the faster one is

SATURATION, LAYOUT, SUGGEST, RANGE = "saturation-without-vnni", "layout", "suggest", "range"
"""Codes of steps; the latter three are of no finding."""

Say = Callable[[str], None]


class Refused(Exception):  # a sentence for the table, and no error
    """A remedy does not apply; its text says why."""


@dataclass
class _File:
    """A file, opened by the runtime that it is for."""

    model: Any
    data: bytes
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]] | None
    refusal: str = ""


@dataclass(frozen=True)
class _Remedy:
    """Something to try: `edit` changes the graph that the file is written from, `replaced` gives another one, and
    `finish` changes what was written from it.
    """

    code: str
    what: str
    done: str
    least: float = NOTABLE
    edit: Callable[[Graph], int] | None = None
    replaced: Callable[[], Graph] | None = None
    finish: Callable[[Any], Any] | None = None
    why_not: str = ""

    @property
    def is_about_time(self) -> bool:
        """True of what is to save time, at hardly a loss."""
        kind = CATALOGUE.get(self.code)
        return self.code == LAYOUT or (kind is not None and kind.gain is Gain.TIME)


def codes_of_remedies() -> tuple[str, ...]:
    """What `only` may name."""
    return (*_ABOUT, "open-sizes", "half-floats", SATURATION, RANGE, SUGGEST, LAYOUT)


# -- what is tried ---------------------------------------------------------------------------------


@dataclass
class _Case:
    """All that remedies are made from."""

    subject: Subject
    samples: Samples
    f32: ModelSource | None
    sizes: Mapping[str, int]

    @property
    def has_data(self) -> bool:
        return not self.samples.random

    @cached_property
    def originals(self) -> mending.Originals:
        graph = None if self.f32 is None else split_graph(graph_from_onnx(self.f32))
        return mending.Originals(graph)

    def ranges(self, graph: Graph, values: Iterable[str]) -> Ranges:
        """By the caller's data.

        Raises:
            Refused: there is none, and some are asked for.
        """
        wanted = list(values)
        if wanted and not self.has_data:
            raise Refused(_NO_DATA)
        return measured(graph, wanted, _fitted(self.samples, graph)) if wanted else {}

    @cached_property
    def comparison(self) -> Comparison | None:
        """Layer by layer, where there is an f32 model of the same inputs."""
        if self.f32 is None:
            return None
        models = read_models(self.f32, self.subject.source)
        alike = all(
            models.f32.type(x).dtype is models.int8.type(x).dtype for x in models.f32.inputs
        )
        return compared(models, self.samples) if alike else None


Edit = Callable[[_Case, mending.Layers, Graph], int]
_NO_F32 = "the weights as they were are needed: --f32 MODEL"
_NO_DATA = "ranges take real inputs: --data DIR|NPZ"
_NO_SIZES = "sizes are needed: --size NAME=N, --shape or --data"


@dataclass(frozen=True)
class _About:
    """What is done about a kind of finding; `f32`: it needs that model."""

    done: str
    edit: Edit
    f32: bool = False


def _join(case: _Case, layers: mending.Layers, graph: Graph) -> int:
    if case.has_data and (found := mending.own_scales(graph, layers, case.ranges)):
        return found
    behind = mending.take_out_behind(graph, layers)
    return mending.take_out(graph, layers, case.originals) + behind


_OUT = _About("layers read numbers, no codes", lambda c, n, g: mending.take_out(g, n, c.originals))
_WEIGHTS = _About(
    "weights from f32, symmetric, by channel",
    lambda c, n, g: mending.own_weights(g, n, c.originals),
    f32=True,
)
_QUANTIZED = _About(
    "quantized, ranges by the data", lambda c, n, g: mending.quantized(g, n, c.ranges)
)
_ABOUT: Mapping[str, _About] = {
    "absurd-scale": _OUT,
    "few-codes": _About("operands get scales of their own, or none", _join),
    "coarse-softmax": _About(
        "no codes behind the softmax", lambda _, n, g: mending.take_out_behind(g, n)
    ),
    "saturated-weights": _WEIGHTS,
    "unused-weight-range": _WEIGHTS,
    "dead-channels": _WEIGHTS,
    "asymmetric-weights": _WEIGHTS,
    "weights-along-inputs": _WEIGHTS,
    "concat-parameters": _About(
        "operands get one scale and sign", lambda _, n, g: mending.one_scale_for_all(g, n)
    ),
    "dynamic-quantizer": _About(
        "ranges by the data", lambda c, _, g: mending.fixed_ranges(g, c.ranges)
    ),
    "f32-product": _QUANTIZED,
    "f32-weights": _QUANTIZED,
}


def _remedies(case: _Case, target: str, only: Sequence[str]) -> Iterator[_Remedy]:
    if target != HERE:
        done = "quantizers where the runtime fuses them"
        yield _Remedy(LAYOUT, "the file as its quantizer wrote it", done, edit=lambda _: 1)
    found = verdict_of(case.subject.plan, sizes=case.sizes).findings
    for code in ("open-sizes", *_ABOUT):
        yield from (_for_finding(case, one) for one in found if one.kind.code == code)
    yield from _by_comparison(case)
    yield from (_for_finding(case, one) for one in found if one.kind.code == "half-floats")
    if case.subject.at_risk and (SATURATION in only or not this_machine().exact_int8):
        count = len(case.subject.at_risk)
        what = f"{count:,} layer{'s' * (count > 1)} whose sums saturate on {case.subject.isa}"
        finish = partial(_seven_bits, case.subject)
        yield _Remedy(SATURATION, what, "7 bits where pairs saturate", finish=finish)


def _for_finding(case: _Case, finding: Finding) -> _Remedy:
    code, what = finding.kind.code, finding.what
    if code == "open-sizes":
        replaced = partial(_at_sizes, case.subject.source, case.sizes)
        why_not = "" if case.sizes else _NO_SIZES
        return _Remedy(code, what, "sizes fixed in the file", replaced=replaced, why_not=why_not)
    if code == "half-floats":
        return _Remedy(code, what, "inputs and outputs in f32", finish=floats_at_borders)
    about = _ABOUT[code]
    why_not = _NO_F32 if about.f32 and case.f32 is None else ""
    layers = mending.Layers(frozenset(map(as_quantized, finding.layers)), as_quantized)
    edit = partial(about.edit, case, layers)
    return _Remedy(code, what, about.done, edit=edit, why_not=why_not)


def _by_comparison(case: _Case) -> Iterator[_Remedy]:
    """What only f32 tells: ranges that data leaves or does not fill, and layers that lose most."""
    found = case.comparison
    if found is None:
        if case.f32 is not None:
            why_not = "inputs of the f32 model are of other types"
            yield _Remedy(SUGGEST, "layers that lose most", "left in f32", why_not=why_not)
        return
    wrong = [one for one in found.ranking if one.cause in (Cause.SATURATED, Cause.TOO_WIDE)]
    ranges = {
        name: (layer.low, layer.high)
        for layer in wrong
        for node in layer.pair.quantizers
        for name in node.quantizer
    }
    if ranges:
        yield _Remedy(
            RANGE,
            f"{len(wrong):,} range{'s' * (len(wrong) > 1)} that values leave or do not fill",
            "ranges by what f32 computes of the data",
            _MUCH,
            edit=partial(mending.with_ranges, ranges=ranges),
            why_not="" if case.has_data else _NO_DATA,
        )
    if found.least < _GOOD:
        yield _Remedy(
            SUGGEST,
            "layers that lose most",
            "left in f32",
            _MUCH,
            edit=partial(_leave, case, found),
        )


def _leave(case: _Case, found: Comparison, graph: Graph) -> int:
    chosen = suggestion_of(found).chosen
    if chosen.sqnr - found.least < _MUCH or not chosen.layers:
        raise Refused(f"no layer left in f32 gains {_MUCH:g} dB")
    layers = mending.Layers(frozenset(map(as_quantized, chosen.layers)), as_quantized)
    return mending.take_out(graph, layers, case.originals)


def _at_sizes(source: ModelSource, sizes: Mapping[str, int]) -> Graph:
    return split_graph(graph_from_onnx(replace(read_model(source, DEFAULT), named=dict(sizes))))


def _seven_bits(subject: Subject, model: Any) -> Any:
    return fixed(subject_of(model, subject.isa)).model


# -- what is kept ----------------------------------------------------------------------------------


def _fitted(samples: Samples, model: Graph | Plan) -> list[dict[str, Array]]:
    """Samples in the types of a model's inputs."""
    return [
        {name: np.asarray(a).astype(model.type(name).dtype.numpy) for name, a in feeds.items()}
        for feeds in samples.feeds
    ]


class _Judge:
    """Opens files for a runtime, and measures them."""

    def __init__(self, case: _Case, target: str) -> None:
        self._case, self._target = case, target
        subject = case.subject
        plan = subject.reference or subject.plan
        session = InferenceSession(plan)
        self._wanted = [outputs_of(session, feeds) for feeds in _fitted(case.samples, plan)]

    def opened(self, model: Any) -> _File:
        """Raises FqfuseError where the runtime does not take it."""
        data = model if isinstance(model, bytes) else model_bytes(model)
        if self._target == HERE:
            session = InferenceSession(compile_model(data))
            return _File(model, data, partial(outputs_of, session))
        other = peer(self._target, data, (), _fitted(self._case.samples, graph_from_onnx(data))[0])
        if other.refusal:
            raise UnsupportedOp(other.refusal, hint="run it with optimizations off")
        return _File(model, data, other.optimized or other.run)

    def sqnr(self, file: _File, isa: Any = "") -> float:
        """The smallest of an output or a part of one; `isa`: as that CPU multiplies codes."""
        run = file.run
        if isa:
            session = InferenceSession(compile_model(file.data), "numpy", isa=isa)
            run = partial(outputs_of, session)
        if run is None:
            return math.nan
        fitted = _fitted(self._case.samples, graph_from_onnx(file.data))
        found: dict[str, Whole] = {}
        for feeds, wanted in zip(fitted, self._wanted, strict=True):
            for name, array in run(feeds).items():
                if name in wanted and wanted[name].shape == array.shape:
                    held = found.setdefault(name, Whole())
                    held.add(*(np.asarray(each, np.float64) for each in (wanted[name], array)))
        return min((one.least for one in found.values()), default=math.inf)

    def times(self, *files: _File) -> list[list[float]]:
        """Milliseconds of the runs of each, in turns, so that what else the machine does meets all."""
        feeds = [_fitted(self._case.samples, graph_from_onnx(file.data))[0] for file in files]
        found: list[list[float]] = [[] for _ in files]
        begun = perf_counter()
        for count in range(_RUNS):
            for file, own, times in zip(files, feeds, found, strict=True):
                if file.run is not None:
                    at = perf_counter()
                    file.run(own)
                    times.append(1e3 * (perf_counter() - at))
            if count > 1 and perf_counter() - begun > _SECONDS * len(files):
                break
        return [times[1:] for times in found]

    def scores(self, *files: _File, isa: str = "") -> tuple[list[Score], bool]:
        """What files give, and whether the last one is surely faster than the first one."""
        times = self.times(*files)
        scores = [
            Score(self.sqnr(file, isa), median(own) if own else math.nan, len(file.data))
            for file, own in zip(files, times, strict=True)
        ]
        turns = [after <= before for before, after in zip(times[0], times[-1], strict=False)]
        quick = scores[-1].ms <= _FASTER * scores[0].ms  # False of NaN
        return scores, quick and sum(turns) >= _MOSTLY * len(turns)


@dataclass
class _Bench:
    """The file as it is by now, and the graph that it was written from."""

    judge: _Judge
    source: ModelSource
    graph: Graph
    file: _File
    isa: str
    steps: list[Step] = field(default_factory=list)

    def take(self, remedy: _Remedy) -> None:
        """Tries a remedy, and keeps what it made if that helps."""
        told = partial(Step, remedy.code, remedy.what, remedy.done)
        if remedy.why_not:
            self.steps.append(told(False, remedy.why_not))
            return
        try:
            graph, model = self._made(remedy)
            file = self.judge.opened(model)
        except Refused as refused:
            self.steps.append(told(False, str(refused)))
            return
        except FqfuseError as error:
            place = f" ({error.where})" if error.where else ""
            self.steps.append(told(False, f"{error.what}{place}"))
            return
        isa = self.isa if remedy.code == SATURATION else ""
        (before, after), faster = self.judge.scores(self.file, file, isa=isa)
        why = _why_not(remedy, before, after, faster=faster)
        self.steps.append(told(not why, why, before, after))
        if not why:
            self.graph, self.file = graph, file

    def _made(self, remedy: _Remedy) -> tuple[Graph, Any]:
        """The graph with the change, and the file written from it."""
        graph, model = self.graph.copy(), self.file.model
        if remedy.edit is not None and not remedy.edit(graph):
            raise Refused("no quantizer there is one that it changes")
        if remedy.replaced is not None:
            graph = remedy.replaced()
        if remedy.edit is not None or remedy.replaced is not None or model is self.source:
            model = written(graph.copy()).model
        return graph, model if remedy.finish is None else remedy.finish(model)


def _why_not(remedy: _Remedy, before: Score, after: Score, *, faster: bool) -> str:
    """Why a change does not help; empty where it does."""
    if math.isnan(before.sqnr):  # the runtime did not load it
        return ""
    gained = after.sqnr - before.sqnr if after.sqnr != before.sqnr else 0.0
    saves = remedy.is_about_time and faster
    if saves and (gained >= -_LOST or after.sqnr >= _GOOD):
        return ""
    if gained >= remedy.least and (remedy.code == SATURATION or not remedy.is_about_time):
        return ""
    if gained < 0 and (saves or not remedy.is_about_time):
        return f"it would lose {-gained:.1f} dB"
    if remedy.is_about_time:
        return "no faster here"
    return f"gains {gained:.1f} dB, less than {remedy.least:g}"


def repaired(
    subject: Subject,
    samples: Samples,
    *,
    f32: ModelSource | None = None,
    sizes: Mapping[str, int],
    target: str = HERE,
    only: Sequence[str] = (),
    say: Say = lambda _: None,
) -> Repair:
    """Tries each remedy in turn, and keeps those that help.

    Args:
        subject: of `subject_of`, with the same f32 model.
        samples: what files are measured on.
        f32: the f32 model that it was made from; None: unknown.
        sizes: of what the model leaves open.
        target: one of `TARGETS`.
        only: codes of remedies; empty: all.
        say: called with what is tried.

    Raises:
        FqfuseError: a name is unknown, or a model cannot be read or run.
    """
    _check_names(target, only)
    case = _Case(subject, samples, f32, sizes)
    judge = _Judge(case, target)
    file = _as_it_is(judge, subject.source)
    bench = _Bench(
        judge, subject.source, split_graph(graph_from_onnx(subject.source)), file, subject.isa
    )
    for remedy in _remedies(case, target, only):
        if not only or remedy.code in only:
            say(f"{remedy.done}: {remedy.what}")
            bench.take(remedy)
    kept = any(step.kept for step in bench.steps)
    scores, _ = judge.scores(*((file, bench.file) if kept else (file,)))
    before, after = scores[0], scores[-1]
    told = subject.told if subject.reference is not None else "the file itself"
    model = bench.file.model if kept else None
    return Repair(subject, samples, target, told, before, after, tuple(bench.steps), model)


def _as_it_is(judge: _Judge, source: ModelSource) -> _File:
    data = model_bytes(source)
    try:
        return replace(judge.opened(data), model=source)
    except (InvalidInput, UnsupportedOp) as error:
        return _File(source, data, None, error.what)


def _check_names(target: str, only: Sequence[str]) -> None:
    if target not in TARGETS:
        raise InvalidInput(
            f"there is no runtime {target!r}",
            where="for",
            hint=f"choose one of {', '.join(TARGETS)}",
        )
    known = codes_of_remedies()
    for code in only:
        if code not in known:
            raise InvalidInput(
                f"no remedy is called {code!r}", where="only", hint=f"choose of {', '.join(known)}"
            )


# -- in one call -----------------------------------------------------------------------------------


def fix(
    model: ModelSource,
    path: str | PathLike[str] | None = None,
    *,
    f32: ModelSource | None = None,
    data: Mapping[str, npt.ArrayLike] | Sequence[Mapping[str, npt.ArrayLike]] | None = None,
    sizes: Mapping[str, int] = NO_SIZES,
    runtime: str = HERE,
    only: Sequence[str] = (),
) -> dict[str, Any]:
    """Repairs a quantized model without training: remedies are tried one by one, measured, and kept
    where they help. Where none does, nothing is written.

    Args:
        model: a path, bytes or `onnx.ModelProto`.
        path: the file to write; None: nothing is written.
        f32: the f32 model that it was made from; None: the model itself without rounding.
        data: an array for each input, or several such samples; None: one sample of random data, and no
            range is taken from it.
        sizes: of what the model leaves open; they become fixed where that helps.
        runtime: for which one: `here` (fqfuse), `onnxruntime` or `openvino`.
        only: codes of findings, `range`, `suggest` and `layout`; empty: all.

    Returns:
        A dictionary with the keys of docs/contributing/json-schema.md, `fqfuse.fix/1`; SQNR in dB.

    Raises:
        FqfuseError: a model, the data or a name is wrong, the runtime is missing, or the file cannot be
            written.
    """
    if path is not None:
        refuse_over(path, model, f32)
    subject = subject_to_repair(model, f32)
    samples = (
        samples_for(subject, sizes)
        if data is None
        else given(subject.graph, listed(data), "the caller's data")
    )
    fixed = sizes_to_fix(subject, samples, sizes)
    found = repaired(subject, samples, f32=f32, sizes=fixed, target=runtime, only=only)
    if path is not None and found.model is not None:
        save_model(found.model, path)
    return as_data(found)


def subject_to_repair(model: ModelSource, f32: ModelSource | None) -> Subject:
    """A model, looked at as this CPU sums its codes; where that is exact, as one with AVX2 does."""
    machine = this_machine()
    return subject_of(model, "avx2" if machine.exact_int8 else machine.isa, f32)


def sizes_to_fix(subject: Subject, samples: Samples, sizes: Mapping[str, int]) -> Mapping[str, int]:
    """The open sizes that somebody gave, by name or by data."""
    if samples.random:
        return sizes
    shapes = {name: tuple(map(int, array.shape)) for name, array in samples.feeds[0].items()}
    return sizes_of_shapes(subject.graph, shapes)
