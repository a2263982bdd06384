"""The program `fqfuse`: its commands, and the one place where their exceptions end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from . import batch, bench, convert, demo, diff, export, fix, inspect, simulate, why
from . import compare as compare_command
from . import compile as compile_command
from . import run as run_command
from .encoding import use_ascii_forms
from .errors import exit_code_of

_HELP = """Compiles quantized ONNX models into plans of fused int8 primitives, says why each quantizer fused or did not, and runs them.

Exit codes: 0 success, 1 a check failed, 2 the input is wrong, 3 a bug in fqfuse.
"""


class Commands(TyperGroup):
    """All commands; what they raise becomes one message and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs a command line (that of the process, if none is given) and exits; returns the exit
        code if not in standalone mode.
        """
        given = sys.argv[1:] if args is None else list(args)

        def action() -> object:
            return super(Commands, self).main(
                given, prog_name, complete_var, False, windows_expand_args, **extra
            )

        code = exit_code_of(action, as_json="--json" in given)
        if standalone_mode:
            sys.exit(code)
        return code

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, without the one that would write into the user's ~/.bashrc: not at once, and
        not where the file is no UTF-8. docs/commands.md says which line to add.
        """
        return [param for param in super().get_params(ctx) if param.name != "install_completion"]


app = typer.Typer(
    name="fqfuse",
    cls=Commands,
    help=_HELP,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _program(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        from ..onednn.native import missing

        typer.echo(f"fqfuse {version_of('fqfuse')}")
        if missing():
            typer.echo(f"without kernels in C, slower on oneDNN: {missing()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


for module in (
    compile_command,
    inspect,
    why,
    diff,
    compare_command,
    simulate,
    fix,
    bench,
    run_command,
    batch,
    convert,
    export,
    demo,
):  # in the order of the help
    name = module.__name__.rpartition(".")[2]
    # Terminals have lines of their own: those of the docstring are joined, paragraphs stay.
    paragraphs = (module.__doc__ or "").strip().split("\n\n")
    app.command(name, help="\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))(
        module.command
    )


def run() -> None:
    """The program: like any other tool it ends silently when the reader of its output has gone."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller has closed it
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  (as long as the process)
    for stream in (sys.stdout, sys.stderr):
        use_ascii_forms(stream)
    app(prog_name="fqfuse")
