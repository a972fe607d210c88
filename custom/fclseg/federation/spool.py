"""Updates that wait for the others of their round: in memory up to a limit, beyond it on disk.

The outlier rule needs all updates at once, so without secure sums a round's memory would grow with the number of sites.
Files have no name, so that nothing is left of them when the server dies.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fclseg.errors import PassingError
from fclseg.federation.states import Arrays, array_bytes

MOST_HELD = 1 << 28
"""Bytes of updates that stay in memory."""


class Spool:
    """``folder``: where files may be; None: everything stays in memory."""

    def __init__(self, folder: Path | None, most: int = MOST_HELD):
        self.folder, self.most, self.held = folder, most, 0

    def keep(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """The same arrays, to read only. On disk, the operating system brings in what is read."""
        size = array_bytes(arrays)
        if self.folder is None or self.held + size <= self.most:
            self.held += size
            return dict(arrays)
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                for array in arrays.values():
                    file.write(np.ascontiguousarray(array).data if array.size else b"")
                file.flush()
                return _mapped(file, arrays)
        except OSError as error:
            raise PassingError(f"{self.folder} cannot hold a round's updates ({error.strerror}): free space") from None


def _mapped(file: object, arrays: Mapping[str, np.ndarray]) -> Arrays:
    found, start = {}, 0
    for name, array in arrays.items():
        if array.size:
            whole = np.memmap(file, array.dtype, "r", start, (array.size,))  # type: ignore[call-overload]
            found[name] = whole.reshape(array.shape)
        else:
            found[name] = array
        start += array.nbytes
    return found
