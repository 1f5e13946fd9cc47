"""The folder of a run: names of its files, and whether a run may begin there or go on."""

import json
import uuid
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

from fedpace.core.errors import ConfigError
from fedpace.core.host import write_whole
from fedpace.core.journal import JOURNAL, Header, check_header, part_path, read


class RunFolder:
    """A folder for one run, whatever its clock; a finished run keeps its journal and its weights.

    part: the journal until the run is over; snapshot: the models now and then; spool: updates that
    have come over a network; clients: their names, by number; run_id: by which clients know the run.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = path = Path(folder)
        self.journal, self.weights = path / JOURNAL, path / "weights.pt"
        self.part, self.snapshot = part_path(self.journal), path / "snapshot.pt"
        self.spool, self.clients, self.run_id = path / "spool", path / "clients.json", path / "run.json"

    def check_free(self) -> None:
        """Refuse a folder that holds a run, finished or not."""
        if self.journal.exists() or self.part.exists():
            raise ConfigError(
                f"{self.path} holds a run already; use --resume, --overwrite or another folder"
            )

    def header(self) -> Header | None:
        """The header of the run that is here; None where there is none."""
        self._drop_unborn()
        return next((read(path)[0] for path in (self.journal, self.part) if path.exists()), None)

    def open(self, header: Header, resume: bool, overwrite: bool) -> bool:
        """Make room for the run of this header; True: it is to be run or gone on with, not over."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; give a folder for the results")
        if overwrite:
            rmtree(self.spool, ignore_errors=True)
            for path in (self.part, self.journal, self.weights, self.clients):
                path.unlink(missing_ok=True)
        elif not resume:
            self.check_free()
        self._drop_unborn()
        check_header(self.journal, header)
        if not self.part.exists():
            self.finish()
        self.path.mkdir(parents=True, exist_ok=True)
        return not self.journal.exists()

    def finish(self) -> None:
        """Delete what only helps to go on with a run."""
        self.snapshot.unlink(missing_ok=True)
        self.run_id.unlink(missing_ok=True)

    def name_run(self) -> str:
        """The name of the run, by which clients know it again after a restart of the server."""
        if not self.run_id.exists():
            write_whole(self.run_id, json.dumps({"run": uuid.uuid4().hex}))
        return str(json.loads(self.run_id.read_text())["run"])

    def _drop_unborn(self) -> None:
        """Delete a journal of which not even the first line was written: nothing had begun."""
        with suppress(FileNotFoundError):
            with self.part.open("rb") as file:
                unborn = not file.readline().endswith(b"\n")
            if unborn:
                self.part.unlink()
