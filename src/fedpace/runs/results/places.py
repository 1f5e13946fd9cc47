"""A folder that lives as long as somebody holds it."""

import shutil
import tempfile
import weakref
from pathlib import Path


class TemporaryFolder:
    """A new folder for results that nobody has named; deleted with the last who holds this object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="fedpace-"))
        self._end = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
