"""`python -m fqfuse` is `fqfuse`."""

from fqfuse.cli import main

if __name__ == "__main__":
    main()
