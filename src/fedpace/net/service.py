"""The Federation service: its five calls, for a server and for a client.

Written out instead of generated: the generated code is tied to one release of grpcio, and untyped.
"""

from collections.abc import Callable
from typing import Any, Protocol

import grpc
from grpc import aio

from fedpace.net import federation_pb2 as pb

SERVICE = "fedpace.v1.Federation"
MESSAGE_BYTES = 2 << 20
"""The largest message: a piece of a transfer, with room to spare."""
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
)


class Servicer(Protocol):
    """What a server has to answer to; the calls of federation.proto, as grpc.aio has them."""

    @property
    def control(self) -> Callable[..., Any]: ...
    @property
    def fetch(self) -> Callable[..., Any]: ...
    @property
    def offer(self) -> Callable[..., Any]: ...
    @property
    def send(self) -> Callable[..., Any]: ...
    @property
    def status(self) -> Callable[..., Any]: ...


def handlers(servicer: Servicer) -> "grpc.GenericRpcHandler[Any, Any]":
    """For `aio.Server.add_generic_rpc_handlers`."""
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Control": grpc.stream_stream_rpc_method_handler(
                servicer.control, pb.FromClient.FromString, pb.FromServer.SerializeToString
            ),
            "Fetch": grpc.unary_stream_rpc_method_handler(
                servicer.fetch, pb.FetchRequest.FromString, pb.Piece.SerializeToString
            ),
            "Offer": grpc.unary_unary_rpc_method_handler(
                servicer.offer, pb.OfferRequest.FromString, pb.OfferReply.SerializeToString
            ),
            "Send": grpc.stream_unary_rpc_method_handler(
                servicer.send, pb.SendRequest.FromString, pb.SendReply.SerializeToString
            ),
            "Status": grpc.unary_unary_rpc_method_handler(
                servicer.status, pb.StatusRequest.FromString, pb.StatusReply.SerializeToString
            ),
        },
    )


class Stub:
    """The calls of a client."""

    def __init__(self, channel: aio.Channel) -> None:
        at = f"/{SERVICE}/"
        self.control = channel.stream_stream(
            at + "Control", pb.FromClient.SerializeToString, pb.FromServer.FromString
        )
        self.fetch = channel.unary_stream(
            at + "Fetch", pb.FetchRequest.SerializeToString, pb.Piece.FromString
        )
        self.offer = channel.unary_unary(
            at + "Offer", pb.OfferRequest.SerializeToString, pb.OfferReply.FromString
        )
        self.send = channel.stream_unary(
            at + "Send", pb.SendRequest.SerializeToString, pb.SendReply.FromString
        )
        self.status = channel.unary_unary(
            at + "Status", pb.StatusRequest.SerializeToString, pb.StatusReply.FromString
        )
