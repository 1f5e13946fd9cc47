"""The network of tests ends cleanly, too: what it leaves open would fail whichever test comes next."""

import gc
import socket

from tests.net.proxy import Proxy


def test_a_connection_that_comes_in_the_turn_in_which_a_proxy_ends_is_closed():
    for _ in range(3):
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as late:
            proxy = Proxy(server.getsockname()[1]).__enter__()

            def come_and_end(late=late, proxy=proxy):
                late.connect(("127.0.0.1", proxy.port))
                proxy._loop.call_soon(proxy._end.set)

            proxy._loop.call_soon_threadsafe(come_and_end)
            proxy._thread.join(60)
            assert not proxy._thread.is_alive()
        gc.collect()  # pytest fails on what is found open
