"""TCP ports of this machine: choosing one, and who listens on it (Linux: read from /proc)."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_LISTEN = "0A"  # include/net/tcp_states.h
#: Ports from one server's HTTP port to the next one's.
BLOCK = 300
_FIRST, _LAST = 20_000, 65_000
#: From the HTTP port: where the ranks meet, and what attention DP takes by itself (0.5.23: ZMQ_TCP_PORT_DELTA,
#: and six ports after it).
_NCCL, _ATTENTION_DP = 100, range(233, 240)


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


@dataclass(frozen=True)
class PortBlock:
    """The ports of one server, reserved on this machine until `release`."""

    http: int
    #: Where its ranks meet.
    nccl: int
    _lock: socket.socket

    def release(self) -> None:
        """Let others have them."""
        self._lock.close()


def ephemeral_ports() -> range:
    """What the kernel gives out by itself: such a port may be taken between its choice and its use."""
    with contextlib.suppress(OSError, ValueError):
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
        return range(low, high + 1)
    return range(32_768, 61_000)  # Linux's default


def block_starts(ephemeral: range) -> list[int]:
    """First ports of the blocks that servers get, `BLOCK` apart and outside the ephemeral range.

    Above 20,000, since Ray's workers listen from 10,002 to 19,999; where the ephemeral range leaves no room
    there, all of it is taken.
    """
    every = range(_FIRST, _LAST - BLOCK, BLOCK)
    outside = [first for first in every if first + BLOCK <= ephemeral.start or first >= ephemeral.stop]
    return outside or list(every)


class Ports:
    """Free blocks of ports, a new one each time.

    SGLang after a KILL can look healthy on the old port and then hang: hence another block for each start. The
    port is bound minutes after its choice: a block is reserved meanwhile, by a name in the kernel's abstract
    namespace (unix(7)), which goes with its owner's death and holds against the machine's other owners.
    """

    def __init__(self, starts: Sequence[int] | None = None) -> None:
        """`starts`: first ports of the blocks; None: those of this machine."""
        self._starts = list(block_starts(ephemeral_ports()) if starts is None else starts)
        # Owners on one host begin apart, also when they were started one after the other.
        self._next = os.getpid() * 7 % len(self._starts)

    def take(self) -> PortBlock:
        """The next block that is reserved by nobody, and free. Raises OSError when none is."""
        for _ in self._starts:
            first = self._starts[self._next]
            self._next = (self._next + 1) % len(self._starts)
            lock = socket.socket(socket.AF_UNIX)
            try:
                lock.bind(f"\0sglang-orchestrator-ports-{first}")
            except OSError:
                lock.close()
                continue
            if all(port_is_free(first + offset, "0.0.0.0") for offset in (0, _NCCL, *_ATTENTION_DP)):
                return PortBlock(first, first + _NCCL, lock)
            lock.close()
        raise OSError(
            f"no free ports between {self._starts[0]} and {self._starts[-1] + BLOCK}: stop what listens there"
        )
