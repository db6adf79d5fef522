"""Names of types that many modules use."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]  # a column; its dtype is stated where it is made
else:
    Array = Any
