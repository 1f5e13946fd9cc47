"""Who gets to see a page."""

from fedpace.report.live.access import (
    MOST_TICKETS,
    SESSION_S,
    TICKET_S,
    KeyAccess,
    TicketAccess,
    cookie_of,
)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_key_opens_its_page_again_and_again():
    access = KeyAccess()
    cookie = access.enter(access.key)
    assert access.allows(cookie)
    assert access.enter(access.key) == cookie
    assert access.enter(KeyAccess().key) is None
    assert not access.allows(access.key)
    assert not access.allows("")


def test_a_ticket_works_once_for_a_while_and_as_long_as_its_holder_counts():
    clock, valid = Clock(), {"ops"}
    access = TicketAccess(valid.__contains__, clock)
    access.admit("one", "ops")
    access.admit("two", "ops")
    access.admit("three", "gone")
    cookie = access.enter("one")
    assert access.allows(cookie)
    assert access.enter("one") is None
    assert access.enter("three") is None
    assert access.enter("") is None
    clock.now = TICKET_S + 1
    assert access.enter("two") is None
    assert access.allows(cookie)
    valid.clear()
    assert not access.allows(cookie)
    valid.add("ops")
    clock.now = SESSION_S + 1
    assert not access.allows(cookie)


def test_tickets_do_not_pile_up():
    access = TicketAccess(lambda _: True)
    for number in range(MOST_TICKETS + 1):
        access.admit(f"ticket {number}", "ops")
    assert access.enter("ticket 0") is None
    assert access.enter(f"ticket {MOST_TICKETS}")


def test_cookies_are_read_from_whatever_a_browser_sends():
    assert cookie_of("a=1; fedpace-80=x; b=2", "fedpace-80") == "x"
    assert cookie_of(None, "fedpace-80") == ""
    assert cookie_of("\x00;=;[]", "fedpace-80") == ""
