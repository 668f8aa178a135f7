"""TCP ports of this machine: choosing one, and who listens on it (Linux: read from /proc)."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

_LISTEN = "0A"  # include/net/tcp_states.h


def _hex(address: bytes) -> str:
    """An address as /proc/net/tcp writes it: words of 32 bits in the machine's byte order."""
    words = struct.unpack(f"={len(address) // 4}I", address)
    # The kernel prints the words of the network's bytes as native integers.
    return "".join(f"{word:08X}" for word in words)


#: Where a listener gets connections to 127.0.0.1.
_REACHED = {
    _hex(socket.inet_aton("127.0.0.1")),
    _hex(socket.inet_aton("0.0.0.0")),
    _hex(socket.inet_pton(socket.AF_INET6, "::")),
    _hex(socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1")),
}


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server can bind the port now (connections that linger do not count)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def listeners(port: int) -> set[str]:
    """Inodes of the sockets that get connections to 127.0.0.1:port."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                address, _, number = words[1].partition(":")
                if words[3] == _LISTEN and int(number, 16) == port and address in _REACHED:
                    found.add(words[9])
    return found


def held_sockets(pids: Iterable[int]) -> set[str]:
    """Inodes of the sockets that these processes hold; one that ends meanwhile holds none."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{name}")
                    if target.startswith("socket:["):
                        found.add(target[len("socket:[") : -1])
    return found


class Ports:
    """Free ports below the ephemeral range, a new one each time.

    SGLang after a KILL can look healthy on the old port and then hang, and with attention DP it takes
    port+233 to port+239 as well: hence a step of 300.
    """

    def __init__(self, first: int = 21_000, last: int = 31_800, step: int = 300) -> None:
        self._ports = range(first, last, step)
        # Owners on one host have different ports, also when they were started one after the other.
        self._offset = os.getpid() % 200
        self._next = os.getpid() // 200 % len(self._ports)

    def take(self) -> int:
        """The next free port. Raises OSError when none is."""
        for _ in self._ports:
            port = self._ports[self._next] + self._offset
            self._next = (self._next + 1) % len(self._ports)
            if port_is_free(port):
                return port
        raise OSError(f"no free port between {self._ports.start} and {self._ports.stop}: stop what holds them")
