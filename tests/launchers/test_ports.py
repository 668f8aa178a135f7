"""Ports: which are free, which come next, who listens."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from launchers.ports import (
    PortBlock,
    Ports,
    block_starts,
    ephemeral_ports,
    held_sockets,
    listeners,
    port_is_free,
)


def test_a_port_that_is_listened_on_is_not_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not port_is_free(taken.getsockname()[1])


def test_a_port_with_only_a_finished_connection_is_free() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            # The side that closes first lingers.
            accepted.close()
            assert client.recv(1) == b""
    assert port_is_free(port)


@pytest.mark.parametrize(
    ("family", "host"),
    [
        (socket.AF_INET, "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0"),
        (socket.AF_INET6, "::"),
        (socket.AF_INET6, "::ffff:127.0.0.1"),
    ],
)
def test_a_listener_that_gets_connections_to_this_host_is_seen_with_its_holder(family: int, host: str) -> None:
    try:
        server = socket.socket(family)
        server.bind((host, 0))
    except OSError:
        pytest.skip("no IPv6 here")
    with server:
        port = server.getsockname()[1]
        assert listeners(port) == set()
        server.listen()
        found = listeners(port)
        assert len(found) == 1
        assert found <= held_sockets([os.getpid()])
        assert not found & held_sockets([os.getppid()])


def test_a_connection_that_outlives_its_listener_is_none() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
    with client, accepted:
        assert accepted.getsockname()[1] == port
        assert listeners(port) == set()


def test_a_listener_on_another_address_is_not_in_the_way() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.2", 0))
        server.listen()
        port = server.getsockname()[1]
        assert listeners(port) == set()
        assert port_is_free(port)


#: Blocks that no launcher gives out, and no other run of these tests.
FIRST = 1_100 + os.getpid() % 25 * 300
STARTS = [FIRST, FIRST + 300, FIRST + 600, FIRST + 900]


@pytest.fixture
def take() -> Iterator[Callable[[Ports], PortBlock]]:
    """Takes the next block; all are let go at the end."""
    taken: list[PortBlock] = []

    def one(ports: Ports) -> PortBlock:
        taken.append(ports.take())
        return taken[-1]

    yield one
    for block in taken:
        block.release()


def listen(port: int) -> socket.socket:
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", port))
    held.listen()
    return held


def test_blocks_are_taken_in_turn() -> None:
    ports = Ports(STARTS)
    seen = []
    for _ in range(5):
        block = ports.take()
        block.release()
        seen.append(block.http)
        assert 0 < block.nccl - block.http < 300
    assert sorted(set(seen)) == STARTS
    assert seen[4] == seen[0]


def test_a_block_that_another_owner_has_is_not_given_out_before_it_is_bound(
    take: Callable[[Ports], PortBlock],
) -> None:
    # Nothing listens yet: SGLang loads for minutes first.
    others = {take(Ports(STARTS)).http for _ in range(3)}
    mine = take(Ports(STARTS))
    assert mine.http not in others
    with pytest.raises(OSError, match="stop what listens there"):
        take(Ports(STARTS))
    mine.release()
    assert take(Ports(STARTS)).http == mine.http


def test_a_block_of_an_owner_that_was_killed_is_free_again(take: Callable[[Ports], PortBlock]) -> None:
    code = f"from launchers.ports import Ports; b = Ports([{FIRST}]).take(); print(b.http, flush=True); input()"
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == f"{FIRST}\n".encode()
        with pytest.raises(OSError, match="no free ports"):
            take(Ports([FIRST]))
    finally:
        owner.kill()
        owner.communicate()
    assert take(Ports([FIRST])).http == FIRST


@pytest.mark.parametrize("offset", [0, 100, 233, 239])
def test_a_block_with_a_port_in_use_is_passed_over(offset: int, take: Callable[[Ports], PortBlock]) -> None:
    # HTTP, the ranks' rendezvous, and what attention DP takes.
    ports = Ports(STARTS[:2])
    with listen(FIRST + offset):
        assert take(ports).http == FIRST + 300


@pytest.mark.parametrize(
    "ephemeral", [range(32_768, 61_000), range(10_000, 30_000), range(49_152, 65_536), ephemeral_ports()]
)
def test_blocks_lie_outside_of_the_ephemeral_range_and_apart(ephemeral: range) -> None:
    starts = block_starts(ephemeral)
    assert len(starts) > 10
    assert not any(port in ephemeral for first in starts for port in range(first, first + 300))
    assert all(b - a >= 300 for a, b in pairwise(starts))
    # Ray's workers listen below.
    assert min(starts) >= 20_000


def test_where_everything_is_ephemeral_there_are_ports_all_the_same() -> None:
    assert len(block_starts(range(1024, 65_536))) > 10
