"""The conduct of clients: refusals and failures are counted, who goes on with them has to stay away.

A client whose tasks fail in a row has a pause after the second one, which doubles each time; it has
left in the eyes of the policy, and joins again. After `failures_in_a_row`, or `quarantine_after`
refused reports, it is shut out for `quarantine_s`. By how the reasons of failed tasks begin, a journal
gives the counts again.
"""

import json
import logging
import math
from collections.abc import Callable, Iterable
from pathlib import Path

from fedpace.core.errors import JournalError, PeerError
from fedpace.core.host import write_whole
from fedpace.remote.reports import ClientRecord
from fedpace.remote.settings import ServeSettings
from fedpace.remote.transport import ClientTransport

log = logging.getLogger("fedpace.server")

REFUSED = "refused: "
"""What the reason of a task begins with that failed because of what its client said."""
NUMBERS = REFUSED + "its numbers: "
"""The same for an update's numbers, for which the model that it began with may be to blame."""
OVERDUE = "overdue: "
UNBLAMED = "not used: "
"""Of tasks that failed by no fault of their client's."""
LEFT = "the client left"
SHUT_OUT = "{} is shut out: too many of its reports were refused, or its tasks failed"
_FIRST_PAUSE_S = 1.0
_MOST_PAUSE_S = 300.0


class Conduct:
    """Records of clients by their numbers, and who of them has to stay away."""

    def __init__(
        self, settings: ServeSettings, transport: ClientTransport, clock: Callable[[], float]
    ) -> None:
        self._settings, self._transport, self._clock = settings, transport, clock
        self.clients: list[ClientRecord] = []

    def is_shut_out(self, record: ClientRecord) -> bool:
        return self._clock() < record.shut_out_until

    def number(self, name: str, most: int, names: Path) -> int:
        """The number of a client; the next free one of `most` for a new name, which goes to disk."""
        for number, record in enumerate(self.clients):
            if record.name == name:
                if self.is_shut_out(record):
                    raise PeerError(SHUT_OUT.format(name))
                return number
        if len(self.clients) >= most:
            raise PeerError(f"this federation has {most} places, and all are taken")
        write_whole(names, json.dumps([record.name for record in self.clients] + [name]), 0o600)
        self.clients.append(ClientRecord(name))
        return len(self.clients) - 1

    def delivered(self, client: int) -> None:
        """Note a good update: failures before it are forgotten."""
        self.clients[client].updates += 1
        self.clients[client].failures = 0

    def count_refusal(self, client: int, reason: str) -> bool:
        """Count a refused report; true if the client is shut out from now on, and told so."""
        record = self.clients[client]
        record.refused += 1
        record.last_refusal = reason
        if record.refused % self._settings.quarantine_after:
            return False
        self._shut_out(record)
        self.expel(client, "too many of its reports were refused")
        return True

    def count_failure(self, client: int) -> float:
        """Count a failed task; seconds for which its client gets no other, 0: it may have one."""
        record, most = self.clients[client], self._settings.failures_in_a_row
        if not most:
            return 0.0
        record.failures += 1
        if record.failures >= most:
            record.failures = 0
            self._shut_out(record)
        if record.failures < 2:
            return 0.0
        return min(_FIRST_PAUSE_S * 2.0 ** (record.failures - 2), _MOST_PAUSE_S)

    def absolve(self, clients: Iterable[int]) -> None:
        """Take refusals back, one for each time that a client is named."""
        for client in clients:
            record = self.clients[client]
            record.refused -= 1
            if record.refused < self._settings.quarantine_after:
                record.shut_out_until = -math.inf

    def expel(self, client: int, reason: str) -> None:
        """Cut a client off that is shut out."""
        seconds = self._settings.quarantine_s
        log.warning("%s is shut out for %g s: %s", self.clients[client].name, seconds, reason)
        self._transport.expel(client, reason)

    def back_at(self) -> float:
        """When the next pause of a client is over."""
        return min((one.back_at for one in self.clients if one.back_at is not None), default=math.inf)

    def returned(self, now: float) -> list[int]:
        """Clients whose pause is over."""
        found = [
            number
            for number, one in enumerate(self.clients)
            if one.back_at is not None and one.back_at <= now
        ]
        for number in found:
            self.clients[number].back_at = None
        return found

    def _shut_out(self, record: ClientRecord) -> None:
        record.shut_out_until = self._clock() + self._settings.quarantine_s
        record.back_at = None


def read_names(path: Path) -> list[str]:
    """Names of clients by their numbers, from a file that may not be there yet."""
    try:
        return list(json.loads(path.read_text())) if path.exists() else []
    except ValueError as error:
        raise JournalError(f"{path} is damaged: {error}; start over with overwrite=True") from error
