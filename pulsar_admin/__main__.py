"""``python -m pulsar_admin``, and the console script: Ctrl-C during imports also ends it without a traceback."""

import gc
import os
import sys
from typing import NoReturn

_INTERRUPTED = 130
# Importing makes many objects and no garbage: with Python's default of 700 a tenth of a cold command is collecting.
_GARBAGE_THRESHOLD = 200_000


def main() -> NoReturn:
    """Import the program and run it."""
    gc.set_threshold(_GARBAGE_THRESHOLD, 10, 10)
    try:
        from pulsar_admin.cli import main as run_program

        run_program()
    except KeyboardInterrupt:
        # Before anything is there to tell it nicely; what came later is told by the program itself.
        os.write(sys.stderr.fileno(), b"error: interrupted\n")
        os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
