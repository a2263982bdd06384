"""The errors of fqfuse.

    FqfuseError                something outside fqfuse is wrong, and the user can mend it
    ├── InvalidModel           the model file or graph breaks the rules of ONNX, or a stage's specification
    ├── UnsupportedOp          the model is valid, but holds an operator that nothing here can run
    ├── PlanError              a plan file cannot be read, or a plan cannot be made for this target
    ├── BackendUnavailable     the runtime that was asked for cannot run on this machine
    └── InvalidInput           an argument of the caller: a name, shape, type, path or option

    InternalError              a bug in fqfuse; outside the tree on purpose, so that `except FqfuseError` lets it through

Each error says what is wrong, where, and how to fix it; `str()` of it is fit to be shown to a
person as it is: names in it are a stranger's texts, so whatever could steer a terminal or begin a
line of its own is escaped (`printable`).
"""

from __future__ import annotations

import re

_WORD = 500  # characters of a name that are shown; generated names have up to about 200
_ROOM = 4000  # characters of a whole sentence: room for a list of a hundred names
# what may take more than 500 characters: an escaped one takes up to ten
_WORDS = re.compile(r"[^ ]{50,}")
# Letters and marks by Unicode's categories, but drawn as nothing (its property
# Default_Ignorable_Code_Point): two names that differ look alike.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def is_printable(text: str) -> bool:
    """True where each character of a text draws something and stays on its line."""
    return text.isprintable() and (text.isascii() or not _INVISIBLE.search(text))


def printable(text: str) -> str:
    """A text on one line: what a model or file calls something, as it may be shown on a terminal.

    Control characters, line ends, marks that turn the direction of writing, what is drawn as
    nothing and lone surrogates are escaped as in Python's literals. The middle of words of more
    than 500 and of texts of more than 4,000 characters is left out; their length stands in its
    place. A printable text stays as it is, and what was made printable stays so.
    """
    if len(text) <= _WORD and is_printable(text):
        return text
    return _shown(_WORDS.sub(lambda word: _shown(word[0], _WORD), text), _ROOM)


def _shown(text: str, room: int) -> str:
    escaped = _escaped(text) if len(text) <= room else text
    if len(escaped) <= room:
        return escaped
    told = f" …({len(text):,} characters)… "
    half = (room - len(told)) // 2
    return _escaped(text[:half])[:half] + told + _escaped(text[-half:])[-half:]


def _escaped(text: str) -> str:
    if is_printable(text):
        return text
    return "".join(c if is_printable(c) else c.encode("unicode_escape").decode() for c in text)


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


class FqfuseError(Exception):
    """Something outside fqfuse is wrong, and the user can mend it.

    Args:
        what: what is wrong, one sentence.
        where: the place: a file, the name of a node or value in the user's model, a line of a text
            form.
        hint: how to fix it, one sentence.
        excerpt: lines of a text form around the place.

    Attributes are the same texts, printable.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "", excerpt: str = "") -> None:
        self.what, self.where, self.hint, self.excerpt = (
            printable(what),
            printable(where),
            printable(hint),
            _lines(excerpt),
        )
        super().__init__(self.what, self.where, self.hint)

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.excerpt:
            lines.append(self.excerpt)
        if self.hint:
            lines.append(f"  fix:   {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # BaseException pickles positional arguments only; where, hint and excerpt are keywords.
        return _rebuild, (type(self), self.what, self.where, self.hint, self.excerpt)


def _rebuild(
    kind: type[FqfuseError], what: str, where: str, hint: str, excerpt: str
) -> FqfuseError:
    return kind(what, where=where, hint=hint, excerpt=excerpt)


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
    """A bug in fqfuse. The text form of the graph or plan, where there is one, is saved for a
    report.

    Args:
        what: the broken invariant.
        saved: path of the saved text form, or an empty string.
        excerpt: lines of the text form around the places where it is broken.
    """

    def __init__(self, what: str, saved: str = "", excerpt: str = "") -> None:
        self.what, self.saved, self.excerpt = printable(what), saved, _lines(excerpt)
        super().__init__(self.what, saved, self.excerpt)

    def __str__(self) -> str:
        tail = (
            f"  the graph was saved to {self.saved}: please attach it to a report"
            if self.saved
            else ""
        )
        return "\n".join(filter(None, (f"internal error: {self.what}", self.excerpt, tail)))
