"""The command line: one file a command, its docstring is its help.

`app` puts the commands together, `errors` turns exceptions into one message and an exit code,
`options` holds what commands share, `console`, `progress`, `load`, `feeds` and `outputs` do what
several of them need. Commands import fqfuse's parts when they run, so that `fqfuse --help` answers
at once.
"""

__all__ = ["main"]


def main() -> None:
    """Runs `fqfuse` with the arguments of the process, and exits with the code that `errors`
    documents.
    """
    from .app import run

    run()
