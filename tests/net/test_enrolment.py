"""Channels of clients."""

import asyncio

from grpc import aio, method_handlers_generic_handler, unary_unary_rpc_method_handler

from fedpace.net.enrolment import open_channel


def test_plain_channels_of_one_process_have_connections_of_their_own():
    """A server bounds the calls of a connection: 20 clients in a process got no further than 16."""

    async def peers():
        async def peer(request, context):
            return context.peer().encode()

        server = aio.server()
        calls = {"Peer": unary_unary_rpc_method_handler(peer)}
        server.add_generic_rpc_handlers([method_handlers_generic_handler("test", calls)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        channels = [open_channel(f"127.0.0.1:{port}", None) for _ in range(3)]
        found = {await channel.unary_unary("/test/Peer")(b"", timeout=60) for channel in channels}
        for channel in channels:
            await channel.close()
        await server.stop(None)
        return found

    assert len(asyncio.run(peers())) == 3
