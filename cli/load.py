"""From a path to a plan: a plan file is read, a model compiled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidInput
from .options import place
from .progress import Progress

if TYPE_CHECKING:
    from ..frontend import Source
    from ..ir.graph import Graph
    from ..passes.base import Pass
    from ..plan.types import Plan

DEFAULT_TARGET = "onednn-v3"


def is_plan_file(path: Path) -> bool:
    """True when the file is a plan.

    Raises:
        InvalidInput: it cannot be read.
    """
    from ..plan.seal import is_plan

    return is_plan(path)


def plan_of(
    path: Path,
    target: str | None,
    dynamic: str | None = None,
    approximate: Sequence[str] | None = None,
    cache: Path | None = None,
) -> Plan:
    """The plan in a file, or of the model in it.

    Args:
        path: a plan file or a model.
        target: for a model, what to compile for (None: the default); for a plan, what it has to be
            for.
        dynamic: likewise, which products have their sources quantized at run time.
        approximate: likewise, which approximations may be made.
        cache: a folder of plans; None: as the environment says.

    Raises:
        FqfuseError: the file or an option is wrong.
    """
    if not is_plan_file(path):
        from ..frontend import DEFAULT, read_model
        from ..plan_cache import cached

        named = checked_options(target, dynamic, approximate)
        source = read_model(path, DEFAULT)
        return cached(
            cache,
            source,
            lambda: compiled(path, target, dynamic, named, source),
            target=target or DEFAULT_TARGET,
            dynamic=dynamic,
            approximate=named,
        )
    approximations = checked_options(target, dynamic, approximate)
    from ..compiler import load_plan

    plan = load_plan(path)
    if target is not None and target != plan.target:
        raise InvalidInput(
            f"the plan is for target {plan.target}, not {target}",
            where=str(path),
            hint="a plan stays as it was compiled: give the model, or ask for no other target",
        )
    if dynamic is not None and dynamic != plan.options.get("dynamic"):
        raise InvalidInput(
            f"the plan was not compiled with --dynamic {dynamic}",
            where=str(path),
            hint="a plan stays as it was compiled: give the model, or ask for no dynamic quantization",
        )
    if approximate and approximations != plan.options.get("approximate"):
        raise InvalidInput(
            f"the plan was not compiled with --approximate {' '.join(approximate)} alone",
            where=str(path),
            hint="a plan stays as it was compiled: give the model, or ask for no approximations",
        )
    return plan


def checked_approximations(approximate: Sequence[str] | None) -> tuple[str, ...]:
    """The approximations, each once.

    Raises:
        InvalidInput: there is none of that name.
    """
    return checked_options(None, None, approximate)


def checked_options(
    target: str | None,
    dynamic: str | None,
    approximate: Sequence[str] | None,
    prefix: str = "--",
) -> tuple[str, ...]:
    """Refuses words that there are not, in the words of the library, and with the option that gave
    them, whose name begins with a prefix; the approximations, each once.
    """
    from ..compiler import check_dynamic
    from ..ir.approximations import check_approximate
    from ..plan.targets import check_target

    option = "target"
    try:
        check_target(DEFAULT_TARGET if target is None else target)
        option = "dynamic"
        check_dynamic(dynamic)
        option = "approximate"
        return check_approximate(tuple(approximate or ()))
    except InvalidInput as error:
        raise InvalidInput(error.what, where=place(prefix + option), hint=error.hint) from error


def compiled(
    path: Path,
    target: str | None,
    dynamic: str | None = None,
    approximate: Sequence[str] | None = None,
    source: Source | None = None,
) -> Plan:
    """Compiles a model, with a progress bar when it takes long; `source`: what was read of it already.

    Raises:
        FqfuseError: the file or an option is wrong.
    """
    from .. import compiler
    from ..passes import PIPELINE

    approximations = checked_options(target, dynamic, approximate)

    with Progress(len(PIPELINE) + 2) as progress:
        progress.say(f"reading {path.name}")
        names = iter([*(step.name.replace("_", " ") for step in PIPELINE[1:]), "composing steps"])

        def observe(_step: Pass, _graph: Graph) -> None:
            progress.advance()
            progress.say(next(names, ""))

        return compiler.compile(
            source or path,
            target=target or DEFAULT_TARGET,
            dynamic=dynamic,
            observers=[observe],
            approximate=approximations,
        )
