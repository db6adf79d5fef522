"""A function that ends its process with SIGKILL: what a test puts in the place of a step."""

import os
import signal
from collections.abc import Callable
from typing import Any


def killing(original: Callable[..., Any], calls: int = 1, *, before: bool) -> Callable[..., Any]:
    """Return ORIGINAL, which ends the process before or after it was called CALLS times."""
    left = calls

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if before and not left:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return counted
