"""The Membership service: certificates for members, and operators' orders to a server that runs.

Who may ask for a certificate has shown a join token, or a certificate that ends soon, in the TLS
handshake; so there is nothing to be guessed here. Orders are for operators. All of it is in the audit
log of the keys folder.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import grpc
from grpc import aio

from fedpace.core.errors import ConfigError, PeerError
from fedpace.net import federation_pb2 as pb
from fedpace.net.connections import Complaints
from fedpace.net.keys import records
from fedpace.net.keys.audit import Actor, write_audit
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import Gate, UnknownCaller, UnreadableRecords
from fedpace.net.keys.identity import Identity
from fedpace.net.service import Call, read_single

log = logging.getLogger("fedpace.server")

SERVICE = "fedpace.v1.Membership"
SIGNED_PER_MINUTE, SIGNED_PER_ASKER = 60, 10
"""Certificates that are asked for in a minute, by all callers together and by one; more must wait."""
_WATCH_S = 24 * 3600.0
"""How often the log warns of certificates that end soon."""


class Orders(Protocol):
    """What operators can have done: a client ends its tasks and leaves, or the run is stopped."""

    def drain(self, name: str) -> bool:
        """Let a client end its tasks and leave; False: it is not here."""
        ...

    def stop(self, reason: str) -> None: ...


class PageLinks(Protocol):
    """Gives operators links to the server's page."""

    def link(self, operator: Identity) -> pb.PageLink: ...


class Membership:
    """Signs certificates of members, and carries out the orders of operators."""

    def __init__(
        self,
        gate: Gate,
        orders: Orders,
        clock: Callable[[], float],
        on_admitted: Callable[[str, str], None] = lambda peer, name: None,
    ) -> None:
        self._gate, self._orders, self._clock = gate, orders, clock
        self._on_admitted = on_admitted
        self._asked: deque[tuple[float, str]] = deque()
        """When who asked for a certificate, in the last minute."""
        self._complaints = Complaints(clock)
        self.on_refused: Callable[[str], None] = lambda kind: None
        """Told the kind of what was turned away, as counters have it."""
        self.pages: PageLinks | None = None
        """Of the server's page; None where it has none."""

    async def sign(self, requests: AsyncIterator[bytes], context: Call) -> pb.SignReply:
        """A certificate for the key of a signing request."""
        token, identity = await self._asker(context)
        folder = self._gate.folder
        request = (await read_single(pb.SignRequest, requests, context)).request
        if folder is None or self._gate.how != "certificate":
            raise await _end(context, grpc.StatusCode.FAILED_PRECONDITION, "no certificates are used")
        who = f"join token {token}" if identity is None else identity.name
        if self._is_too_often(who):
            self.on_refused("too_often")
            raise await _end(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "too many ask; wait a minute")
        actor = Actor(who, context.peer())
        try:
            authority = await asyncio.to_thread(Authority.open, folder, self._gate.clock, actor)
            if identity is None:
                made = await asyncio.to_thread(authority.redeem, token or "", request)
            else:
                made = await asyncio.to_thread(authority.renew_member, identity, request)
        except PeerError as error:
            self.on_refused("certificate")
            log.warning("%s gets no certificate: %s", who, error)
            raise await _end(context, grpc.StatusCode.PERMISSION_DENIED, str(error)) from error
        except (ConfigError, OSError) as error:
            log.error("certificates cannot be signed: %s", error)
            text = "this server cannot sign now; ask its operator for `fedpace keys sign`"
            raise await _end(context, grpc.StatusCode.UNAVAILABLE, text) from error
        log.info("%s has got a certificate", who)
        return pb.SignReply(certificate=made, authority=authority.ca.certificate_pem)

    async def operate(self, requests: AsyncIterator[bytes], context: Call) -> pb.OperateReply:
        """Carry out an operator's order."""
        identity = await self._member(context)
        request = await read_single(pb.OperateRequest, requests, context)
        folder, order = self._gate.folder, request.WhichOneof("order")
        if identity is None or folder is None:
            text = "a server without keys knows no operators; stop it with Ctrl-C"
            raise await _end(context, grpc.StatusCode.PERMISSION_DENIED, text)
        actor = Actor(identity.name, context.peer())
        name, reason = _line(request.expel or request.drain) or None, _line(request.reason) or None
        if identity.role != "operator":
            self.on_refused("order")
            if self._complaints.is_due(f"{identity.name} {order}"):
                log.warning("%s is no operator, and may not %s", identity.name, order)
                with suppress(OSError):
                    self._write(folder, f"was refused: {order}", actor, name, reason)
            what = "see the page" if order == "page" else order
            text = f"{identity.name} is a client; only an operator may {what}"
            raise await _end(context, grpc.StatusCode.PERMISSION_DENIED, text)
        try:
            if order == "page":
                return await asyncio.to_thread(self._page_link, folder, identity, actor)
            said = await asyncio.to_thread(self._carry_out, folder, request, actor, reason)
        except (ConfigError, OSError) as error:
            raise await _end(context, grpc.StatusCode.FAILED_PRECONDITION, str(error)) from error
        log.warning("operator %s: %s%s", identity.name, said, f" ({reason})" if reason else "")
        return pb.OperateReply(said=said)

    def _page_link(self, folder: Path, operator: Identity, actor: Actor) -> pb.OperateReply:
        if self.pages is None:
            raise ConfigError("this server has no page; start it with --page [HOST:]PORT")
        link = self.pages.link(operator)
        self._write(folder, "got a link to the page", actor, None, None)
        return pb.OperateReply(said="the link works once, within 5 minutes", page=link)

    def _carry_out(
        self, folder: Path, request: pb.OperateRequest, actor: Actor, reason: str | None
    ) -> str:
        match request.WhichOneof("order"):
            case "expel":
                name = request.expel
                if name == actor.who:
                    raise ConfigError("nobody expels itself; use another operator's keys")
                now = self._gate.clock()
                ended = records.revoke(folder, name, now, actor, "expelled", reason)
                return f"{name} is expelled" if ended else f"{name} was revoked already"
            case "drain":
                if not self._orders.drain(request.drain):
                    raise ConfigError(f"there is no client {request.drain!r} here")
                self._write(folder, "drained", actor, request.drain, reason)
                return f"{request.drain} leaves when its tasks have ended"
            case "stop":
                self._write(folder, "stopped the server", actor, None, reason)
                self._orders.stop(f"operator {actor.who}{f': {reason}' if reason else ''}")
                return "the server saves its models and ends; go on with --resume"
            case other:
                raise ConfigError(f"there is no order {other}")

    def _write(
        self, folder: Path, what: str, actor: Actor, name: str | None, reason: str | None
    ) -> None:
        write_audit(folder, what, actor, self._gate.clock(), name=name, reason=reason)

    async def watch(self) -> None:
        """Warn of certificates of the server that end soon, now and then; until cancelled."""
        while self._gate.tls is not None:
            for warning in self._gate.tls.warnings():
                log.warning("%s", warning)
            await asyncio.sleep(_WATCH_S)

    # Who asks

    async def _asker(self, context: Call) -> tuple[str | None, Identity | None]:
        """The join token that was shown, or else the member."""
        try:
            token = self._gate.joiner(context)
        except (UnknownCaller, ConfigError) as error:
            raise await self._turn_away(context, error) from error
        if token is None:
            return None, await self._member(context)
        self._on_admitted(context.peer(), f"join token {token}")
        return token, None

    async def _member(self, context: Call) -> Identity | None:
        try:
            identity = self._gate.who(context)
        except UnknownCaller as error:
            raise await self._turn_away(context, error) from error
        self._on_admitted(context.peer(), "" if identity is None else identity.name)
        return identity

    async def _turn_away(self, context: Call, error: Exception) -> Exception:
        if self._complaints.is_due(str(error)):
            log.warning("a call from %s is turned away: %s", context.peer(), error)
        later = isinstance(error, UnreadableRecords | ConfigError)
        self.on_refused("records" if later else "credentials")
        code = grpc.StatusCode.UNAVAILABLE if later else grpc.StatusCode.UNAUTHENTICATED
        return await _end(context, code, "")

    def _is_too_often(self, who: str) -> bool:
        now = self._clock()
        while self._asked and now - self._asked[0][0] > 60:
            self._asked.popleft()
        own = sum(name == who for _, name in self._asked)
        if len(self._asked) >= SIGNED_PER_MINUTE or own >= SIGNED_PER_ASKER:
            return True
        self._asked.append((now, who))
        return False


async def _end(context: Call, code: grpc.StatusCode, text: str) -> Exception:
    """End a call; what it returns is never raised, since this does not return."""
    await context.abort(code, text[:500])
    return AssertionError("abort raises")


def membership_handlers(membership: Membership) -> "grpc.GenericRpcHandler[Any, Any]":
    """Handlers of all calls, for `aio.Server.add_generic_rpc_handlers`."""
    up = grpc.stream_unary_rpc_method_handler
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Sign": up(membership.sign, None, pb.SignReply.SerializeToString),
            "Operate": up(membership.operate, None, pb.OperateReply.SerializeToString),
        },
    )


class MembershipStub:
    """The calls that members and operators make."""

    def __init__(self, channel: aio.Channel) -> None:
        at = f"/{SERVICE}/"
        self.sign = channel.unary_unary(
            at + "Sign", pb.SignRequest.SerializeToString, pb.SignReply.FromString
        )
        self.operate = channel.unary_unary(
            at + "Operate", pb.OperateRequest.SerializeToString, pb.OperateReply.FromString
        )


def _line(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text[:200]).strip()
