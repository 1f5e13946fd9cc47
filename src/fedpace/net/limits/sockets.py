"""Limits on connections to the server: in all, of strangers by address, of members by name.

gRPC accepts connections by itself and knows one limit, in all: `grpc.max_allowed_incoming_connections`;
so there always are descriptors left for spool and journal. Who holds connections is looked up here,
some times a second, among the descriptors of this process. A connection is proved once a call over it
was admitted; one that is not after `PROOF_S`, or that is one too many, is shut down, the oldest first:
an honest handshake takes milliseconds. An address with too many is kept out for a while by the kernel,
so that it cannot take the places of others. What is limited in this way costs transfers nothing.
"""

import asyncio
import logging
import os
import socket
import stat
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from urllib.parse import unquote

from fedpace.net.limits.address_filter import MOST_ADDRESSES, drop_addresses
from fedpace.remote.settings import ServeSettings

log = logging.getLogger("fedpace.server")

PROOF_S = 10.0
"""How long a connection may stay over which nobody was admitted."""
LOOK_S = 0.25
FIRST_BLOCK_S, MOST_BLOCK_S = 5.0, 60.0
"""How long an address with too many unproved connections is kept out; it doubles each time."""
MOST_BY_NAME = 16
"""Connections of one member; it needs one."""
_KEPT = 128
"""Descriptors for journal, snapshot, data and libraries; besides, two a client for updates."""
_WANTED_DESCRIPTORS = 65_536
_OPEN = next((path for path in (Path("/proc/self/fd"), Path("/dev/fd")) if path.exists()), None)

Peer = tuple[str, int]
"""Address and port of the other side."""
Descriptor = tuple[int, int]
"""Number and inode."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """most: connections in all; unproved: of one address; unproved_in_all: half of all."""

    most: int
    unproved: int

    @property
    def unproved_in_all(self) -> int:
        return max(self.most // 2, 1)

    @classmethod
    def fitting(cls, settings: ServeSettings, clients: int) -> "ConnectionLimits":
        """The settings' limits, or what the descriptors of this process allow, if that is less.

        The soft limit of descriptors is raised to the hard one.
        """
        left = raise_descriptor_limit() - _count_descriptors() - _KEPT - 2 * clients
        most = min(settings.connections, max(left, 8))
        if most < clients + 8:
            log.warning(
                "%d connections at most for %d clients; raise the limit of open files (ulimit -n)%s",
                most,
                clients,
                "" if left <= most else " and serve.connections",
            )
        return cls(most, min(settings.unproved_connections, max(most // 4, 1)))

    def options(self) -> tuple[tuple[str, int], ...]:
        """Options of the gRPC server."""
        return (("grpc.max_allowed_incoming_connections", self.most),)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one; how many there may be now."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return _WANTED_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = _WANTED_DESCRIPTORS if hard == unlimited else min(hard, _WANTED_DESCRIPTORS)
    if soft != unlimited and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return _WANTED_DESCRIPTORS if soft == unlimited else soft


def _count_descriptors() -> int:
    return 64 if _OPEN is None else len(os.listdir(_OPEN))


class SocketWatch:
    """Shuts down connections to a port that are one too many. All of it is for one event loop."""

    def __init__(self, port: int, limits: ConnectionLimits, clock: Callable[[], float]) -> None:
        self._port, self._limits, self._clock = port, limits, clock
        self._seen: dict[Peer, float] = {}
        """When connections that are there were first seen."""
        self._names: dict[Peer, str] = {}
        """Who was admitted over them."""
        self._ended: set[Peer] = set()
        """Those that were shut down, and are not closed yet."""
        self._known: dict[int, Peer | None] = {}
        """Sockets that were there at the last look, by inode; None: other than connections to us."""
        self._listeners: dict[int, Descriptor] = {}
        """Sockets that listen on our port, by inode."""
        self._strikes: dict[str, int] = defaultdict(int)
        self.blocked: dict[str, float] = {}
        """Addresses that are kept out, and until when."""
        self.cut = 0
        """Connections that were shut down."""
        self._told_at = -60.0

    @property
    def count(self) -> int:
        """Connections that were there at the last look."""
        return len(self._seen)

    def proved(self, peer: str, name: str) -> None:
        """Note that a call was admitted. peer: as gRPC writes it; name: empty where none is proved."""
        found = parse_peer(peer)
        if found is not None:
            self._names[found] = name

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while _OPEN is not None:
            await asyncio.sleep(LOOK_S)
            try:
                self.look()
            except OSError as error:
                log.warning("connections cannot be looked at: %s", error)

    def look(self) -> None:
        """Shut down what is one too many now."""
        sockets, now = self._connections(), self._clock()
        self._seen = {peer: self._seen.get(peer, now) for peer in sockets}
        self._names = {peer: name for peer, name in self._names.items() if peer in sockets}
        self._ended &= sockets.keys()
        found, offenders = self._surplus(now)
        self._block(offenders, now)
        self._ended.update(found)
        for peer in found:
            own = _copy(sockets[peer])
            if own is not None:
                with own, suppress(OSError):  # it is gone
                    own.shutdown(socket.SHUT_RDWR)
        self.cut += len(found)
        if found and now - self._told_at >= 60:
            self._told_at = now
            addresses = sorted({_group(peer) for peer in found})
            log.warning(
                "%d connections are shut down that prove nothing, or are too many, from %s",
                len(found),
                ", ".join(addresses[:5]) + (" and others" if len(addresses) > 5 else ""),
            )

    def _block(self, offenders: list[str], now: float) -> None:
        """Keep addresses out that have too many unproved connections, and let others in again."""
        before = set(self.blocked)
        self.blocked = {group: until for group, until in self.blocked.items() if now < until}
        for group in offenders:
            if group not in self.blocked and len(self.blocked) < MOST_ADDRESSES:
                block_s = min(FIRST_BLOCK_S * 2 ** self._strikes[group], MOST_BLOCK_S)
                self.blocked[group] = now + block_s
                self._strikes[group] = min(self._strikes[group] + 1, 10)
        if len(self._strikes) > 10 * MOST_ADDRESSES:
            self._strikes.clear()
        if set(self.blocked) != before:
            for listener in self._listeners.values():
                own = _copy(listener)
                if own is not None:
                    with own:
                        drop_addresses(own, self.blocked)

    def _surplus(self, now: float) -> tuple[list[Peer], list[str]]:
        """Connections that may not stay, and addresses that have too many."""
        strangers: dict[str, list[Peer]] = defaultdict(list)
        members: dict[str, list[Peer]] = defaultdict(list)
        surplus, offenders = list[Peer](), list[str]()
        for peer, since in sorted(self._seen.items(), key=lambda item: item[1]):
            name = self._names.get(peer)
            if peer in self._ended:
                continue
            if name is not None:
                members[name].append(peer)
            elif now - since > PROOF_S:
                surplus.append(peer)
            else:
                strangers[_group(peer)].append(peer)
        for group, peers in strangers.items():
            over = len(peers) - self._limits.unproved
            if over > 0:
                offenders.append(group)
                surplus += peers[:over]
                del peers[:over]
        while sum(map(len, strangers.values())) > self._limits.unproved_in_all:
            surplus.append(max(strangers.values(), key=len).pop(0))
        for name, peers in members.items():
            if name:
                surplus += peers[: max(len(peers) - MOST_BY_NAME, 0)]
        return surplus, offenders

    def _connections(self) -> dict[Peer, Descriptor]:
        """Connections to our port; a socket that was there before is known by its inode."""
        found: dict[Peer, Descriptor] = {}
        known, self._known = self._known, {}
        for entry in os.listdir(_OPEN):
            try:
                state = os.fstat(int(entry))
            except OSError:
                continue
            if stat.S_ISSOCK(state.st_mode):
                one = (int(entry), state.st_ino)
                peer = known[one[1]] if one[1] in known else self._find_peer(one)
                self._known[one[1]] = peer
                if peer is not None:
                    found[peer] = one
        return found

    def _find_peer(self, descriptor: Descriptor) -> Peer | None:
        """The other side of a connection to our port; None: it is something else, maybe a listener."""
        own = _copy(descriptor)
        if own is None:
            return None
        with own, suppress(OSError):  # it is gone
            ours = (
                own.family in (socket.AF_INET, socket.AF_INET6) and own.getsockname()[1] == self._port
            )
            if ours and own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                self._listeners[descriptor[1]] = descriptor
            elif ours:
                there = own.getpeername()
                return _plain(there[0]), int(there[1])
        return None


def _copy(descriptor: Descriptor) -> socket.socket | None:
    """A duplicate of a socket: gRPC may close its own at any time, and another get the number.

    None where that has happened.
    """
    number, inode = descriptor
    try:
        copy = os.dup(number)
    except OSError:
        return None
    with suppress(OSError):
        if os.fstat(copy).st_ino == inode:
            return socket.socket(fileno=copy)
    os.close(copy)
    return None


def parse_peer(text: str) -> Peer | None:
    """Address and port in `ipv4:192.0.2.7:50000` or `ipv6:%5B::1%5D:50000`; None: it is neither."""
    kind, _, rest = unquote(text).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    try:
        return _plain(host.strip("[]")), int(port)
    except ValueError:
        return None


@lru_cache(10_000)
def _plain(host: str) -> str:
    """An address in one spelling: IPv4 that came in IPv6 as IPv4, without a zone."""
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


@lru_cache(10_000)
def _group(peer: Peer) -> str:
    """The address that a connection counts for; of IPv6 the /64, all of which one machine may have."""
    address = ip_address(peer[0])
    if isinstance(address, IPv6Address):
        return f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return peer[0]
