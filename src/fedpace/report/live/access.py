"""Who may look at a live page: whoever has its link, or has been given a ticket.

A browser proves itself by a cookie, which it gets for a key or a ticket in the link that opened the
page. Secrets are compared in constant time and kept in memory only.
"""

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Protocol

TICKET_S = 300.0
"""How long a ticket can be used."""
SESSION_S = 12 * 3600.0
MOST_TICKETS, MOST_SESSIONS = 32, 64


class PageAccess(Protocol):
    """Lets browsers in.

    enter: the cookie for the secret of a link, None for a wrong one; allows: tells if a cookie lets in
    now. hint: what is said to whom it does not.
    """

    hint: str

    def enter(self, secret: str) -> str | None: ...
    def allows(self, cookie: str) -> bool: ...


class KeyAccess:
    """A page with a key in its link, as often as one likes while it is served."""

    hint = "open the link that `fedpace watch` has printed: it has the page's key"

    def __init__(self) -> None:
        self.key, self._cookie = secrets.token_urlsafe(24), secrets.token_urlsafe(24)

    def enter(self, secret: str) -> str | None:
        return self._cookie if _is_same(secret, self.key) else None

    def allows(self, cookie: str) -> bool:
        return _is_same(cookie, self._cookie)


class OpenAccess:
    """A page for everybody who reaches it."""

    hint = ""

    def enter(self, secret: str) -> str | None:
        return ""

    def allows(self, cookie: str) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class _Pass:
    who: str
    until: float


class TicketAccess:
    """A page for operators: each has a link that works once, and then a cookie for some hours.

    valid: tells if a holder, by the text that came with his ticket, still counts; asked at every look.
    """

    hint = "ask for a link with `fedpace page HOST:PORT --keys DIR` and an operator's keys"

    def __init__(self, valid: Callable[[str], bool], clock: Callable[[], float] = time.monotonic):
        self._valid, self._clock = valid, clock
        self._tickets: dict[str, _Pass] = {}
        self._sessions: dict[str, _Pass] = {}
        self._lock = threading.Lock()

    def admit(self, ticket: str, who: str) -> None:
        """Take a ticket into use. The oldest goes where there are too many."""
        with self._lock:
            _add(self._tickets, ticket, _Pass(who, self._clock() + TICKET_S), MOST_TICKETS)

    def enter(self, secret: str) -> str | None:
        with self._lock:
            found = _find(self._tickets, secret)
            ticket = None if found is None else self._tickets.pop(found)
            if ticket is None or ticket.until < self._clock() or not self._valid(ticket.who):
                return None
            cookie = secrets.token_urlsafe(32)
            _add(self._sessions, cookie, _Pass(ticket.who, self._clock() + SESSION_S), MOST_SESSIONS)
            return cookie

    def allows(self, cookie: str) -> bool:
        with self._lock:
            found = _find(self._sessions, cookie)
            session = None if found is None else self._sessions[found]
        return session is not None and self._clock() < session.until and self._valid(session.who)


def cookie_of(header: str | None, name: str) -> str:
    """The value of a cookie in a request's header; empty where there is none."""
    try:
        found = SimpleCookie(header or "").get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _add(passes: dict[str, _Pass], key: str, one: _Pass, most: int) -> None:
    while len(passes) >= most:
        del passes[next(iter(passes))]
    passes[key] = one


def _find(passes: dict[str, _Pass], secret: str) -> str | None:
    """The key that is this secret; all are compared, so that time tells nothing."""
    found = [key for key in passes if _is_same(key, secret)]
    return found[0] if found else None


def _is_same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(), known.encode())
