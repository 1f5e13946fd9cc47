"""Drops new connections of some addresses in the kernel, before they cost a descriptor; on Linux.

A classic BPF program on the listening socket, which any user may attach: it looks at who a packet comes
from. An accepted connection inherits the program of that moment, in which its own address is not.
"""

import ctypes
import socket
import struct
import sys
from collections.abc import Collection
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network

MOST_ADDRESSES = 500
_ATTACH, _DETACH = 26, 27
"""SO_ATTACH_FILTER and SO_DETACH_FILTER, which Python does not name."""
_NETWORK_HEADER = 0xFFF00000
_LOAD_BYTE, _LOAD_WORD, _AND, _JUMP, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x20, 0x54, 0x05, 0x15, 0x06
_TAKE, _DROP = 0xFFFFFFFF, 0

Instruction = tuple[int, int, int, int]
"""Code, how many instructions to skip where it is true and where not, and a constant."""


def drop_addresses(listener: socket.socket, groups: Collection[str]) -> bool:
    """Drop new connections from these IPv4 addresses and IPv6 networks of 64 bits, and from no others.

    False where the kernel does not do it.
    """
    if not sys.platform.startswith("linux"):
        return False
    with suppress(OSError):
        if not groups:
            listener.setsockopt(socket.SOL_SOCKET, _DETACH, 0)
            return True
        code = b"".join(struct.pack("@HBBI", *one) for one in program(groups))
        held = ctypes.create_string_buffer(code, len(code))
        told = struct.pack("@HP", len(code) // 8, ctypes.addressof(held))
        listener.setsockopt(socket.SOL_SOCKET, _ATTACH, told)
        return True
    return False


def program(groups: Collection[str]) -> list[Instruction]:
    """The program that drops packets of these sources."""
    networks = [ip_network(group) for group in list(groups)[:MOST_ADDRESSES]]
    four = [one.network_address for one in networks if isinstance(one, IPv4Network)]
    six = [one for one in networks if isinstance(one, IPv6Network)]
    of_four = _four(four)
    return [
        (_LOAD_BYTE, 0, 0, _NETWORK_HEADER),
        (_AND, 0, 0, 0xF0),
        (_JUMP_IF_EQUAL, 1, 0, 0x40),
        (_JUMP, 0, 0, len(of_four)),
        *of_four,
        *_six(six),
    ]


def _four(addresses: list[IPv4Address]) -> list[Instruction]:
    code: list[Instruction] = [(_LOAD_WORD, 0, 0, _NETWORK_HEADER + 12)]
    for address in addresses:
        code += [(_JUMP_IF_EQUAL, 0, 1, int(address)), (_RETURN, 0, 0, _DROP)]
    return [*code, (_RETURN, 0, 0, _TAKE)]


def _six(networks: list[IPv6Network]) -> list[Instruction]:
    code: list[Instruction] = []
    for network in networks:
        top = int(network.network_address) >> 64
        code += [
            (_LOAD_WORD, 0, 0, _NETWORK_HEADER + 8),
            (_JUMP_IF_EQUAL, 0, 3, top >> 32),
            (_LOAD_WORD, 0, 0, _NETWORK_HEADER + 12),
            (_JUMP_IF_EQUAL, 0, 1, top & 0xFFFFFFFF),
            (_RETURN, 0, 0, _DROP),
        ]
    return [*code, (_RETURN, 0, 0, _TAKE)]
