"""The errors of fqfuse.

    FqfuseError                something outside fqfuse is wrong, and the user can mend it
    ├── InvalidModel           the model file or graph breaks the rules of ONNX, or a stage's specification
    ├── UnsupportedOp          the model is valid, but holds an operator that nothing here can run
    ├── PlanError              a plan file cannot be read, or a plan cannot be made for this target
    ├── BackendUnavailable     the runtime that was asked for cannot run on this machine
    └── InvalidInput           an argument of the caller: a name, shape, type, path or option

    InternalError              a bug in fqfuse; outside the tree on purpose, so that `except FqfuseError` lets it through

Each error says what is wrong, where, and how to fix it; `str()` of it is fit to be shown to a person as it is.
"""

from __future__ import annotations

__all__ = [
    "BackendUnavailable",
    "FqfuseError",
    "InternalError",
    "InvalidInput",
    "InvalidModel",
    "PlanError",
    "UnsupportedOp",
]


class FqfuseError(Exception):
    """Something outside fqfuse is wrong, and the user can mend it.

    Args:
        what: what is wrong, one sentence.
        where: the place: a file, the name of a node or value in the user's model, a line of a text form.
        hint: how to fix it, one sentence.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what, where, hint)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.hint:
            lines.append(f"  fix:   {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # BaseException pickles positional arguments only; where and hint are keywords.
        return _rebuild, (type(self), self.what, self.where, self.hint)


def _rebuild(kind: type[FqfuseError], what: str, where: str, hint: str) -> FqfuseError:
    return kind(what, where=where, hint=hint)


class InvalidModel(FqfuseError):
    """The model breaks the rules of ONNX or of a compilation stage, or goes past a budget."""


class UnsupportedOp(FqfuseError):
    """The model holds an operator that neither the compiler nor the fallback knows."""


class PlanError(FqfuseError):
    """A plan file cannot be read or written, or no plan can be made for the target."""


class BackendUnavailable(FqfuseError):
    """The runtime that was asked for is not installed or not usable on this machine."""


class InvalidInput(FqfuseError):
    """An argument is wrong: the name, shape or type of an input, a path, an option."""


class InternalError(Exception):
    """A bug in fqfuse. The text form of the graph or plan, where there is one, is saved for a report.

    Args:
        what: the broken invariant.
        saved: path of the saved text form, or an empty string.
    """

    def __init__(self, what: str, saved: str = "") -> None:
        super().__init__(what, saved)
        self.what = what
        self.saved = saved

    def __str__(self) -> str:
        tail = f"\n  the graph was saved to {self.saved}: please attach it to a report" if self.saved else ""
        return f"internal error: {self.what}{tail}"
