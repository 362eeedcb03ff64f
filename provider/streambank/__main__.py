"""`python -m streambank`, and what the script `streambank` calls."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line on the process's arguments; gives the exit code."""
    from streambank.cli.run import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
