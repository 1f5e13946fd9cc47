"""Limits on connections to the server: in all, of strangers by address, of members by name.

gRPC accepts connections by itself and knows one limit, in all: `grpc.max_allowed_incoming_connections`;
so there always are descriptors left for spool and journal. Who holds connections is looked up here,
some times a second, among the descriptors of this process. A connection is proved once a call over it
was admitted; one that is not after `PROOF_S`, or that is one too many, is shut down, the oldest first:
an honest handshake takes milliseconds. What is limited in this way costs transfers nothing.
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
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from urllib.parse import unquote

from fedpace.remote.settings import ServeSettings

log = logging.getLogger("fedpace.server")

PROOF_S = 10.0
"""How long a connection may stay over which nobody was admitted."""
LOOK_S = 0.25
MOST_BY_NAME = 16
"""Connections of one member; it needs one."""
_KEPT = 128
"""Descriptors for journal, snapshot, data and libraries; besides, two a client for updates."""
_WANTED_DESCRIPTORS = 65_536
_OPEN = next((path for path in (Path("/proc/self/fd"), Path("/dev/fd")) if path.exists()), None)

Peer = tuple[str, int]
"""Address and port of the other side."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """most: connections in all; unproved: of one address; unproved_in_all: a quarter of all."""

    most: int
    unproved: int

    @property
    def unproved_in_all(self) -> int:
        return max(self.most // 4, 1)

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
        return cls(most, settings.unproved_connections)

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
        self.cut = 0
        """Connections that were shut down."""
        self._told_at = -60.0

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
        sockets = self._connections()
        try:
            now = self._clock()
            self._seen = {peer: self._seen.get(peer, now) for peer in sockets}
            self._names = {peer: name for peer, name in self._names.items() if peer in sockets}
            self._ended &= sockets.keys()
            found = self._surplus(now)
            self._ended.update(found)
            for peer in found:
                with suppress(OSError):  # it is gone
                    sockets[peer].shutdown(socket.SHUT_RDWR)
        finally:
            for one in sockets.values():
                one.close()
        self.cut += len(found)
        if found and now - self._told_at >= 60:
            self._told_at = now
            addresses = sorted({_group(peer) for peer in found})
            log.warning(
                "%d connections are shut down that prove nothing, or are too many, from %s",
                len(found),
                ", ".join(addresses[:5]) + (" and others" if len(addresses) > 5 else ""),
            )

    def _surplus(self, now: float) -> list[Peer]:
        """Connections that may not stay."""
        strangers: dict[str, list[Peer]] = defaultdict(list)
        members: dict[str, list[Peer]] = defaultdict(list)
        surplus = []
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
        for peers in strangers.values():
            over = len(peers) - self._limits.unproved
            surplus += peers[: max(over, 0)]
            del peers[: max(over, 0)]
        while sum(map(len, strangers.values())) > self._limits.unproved_in_all:
            surplus.append(max(strangers.values(), key=len).pop(0))
        for name, peers in members.items():
            if name:
                surplus += peers[: max(len(peers) - MOST_BY_NAME, 0)]
        return surplus

    def _connections(self) -> dict[Peer, socket.socket]:
        """Connections to our port. Of our own descriptors: gRPC may close its own at any time."""
        found: dict[Peer, socket.socket] = {}
        for entry in os.listdir(_OPEN):
            try:
                if not stat.S_ISSOCK(os.fstat(int(entry)).st_mode):
                    continue
                own = socket.socket(fileno=os.dup(int(entry)))
            except OSError:
                continue
            try:
                here, there = own.getsockname(), own.getpeername()
                if own.family in (socket.AF_INET, socket.AF_INET6) and here[1] == self._port:
                    peer = (_plain(there[0]), int(there[1]))
                    if peer not in found:
                        found[peer] = own
                        continue
            except OSError:  # it listens, or is gone
                pass
            own.close()
        return found


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


def _plain(host: str) -> str:
    """An address in one spelling: IPv4 that came in IPv6 as IPv4, without a zone."""
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _group(peer: Peer) -> str:
    """The address that a connection counts for; of IPv6 the /64, all of which one machine may have."""
    address = ip_address(peer[0])
    if isinstance(address, IPv6Address):
        return f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return peer[0]
