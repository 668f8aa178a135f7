"""Ports: which are free, which come next, who listens."""

from __future__ import annotations

import os
import socket

import pytest

from launchers.ports import Ports, held_sockets, listeners, port_is_free


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


def test_ports_are_taken_in_turn_and_skip_what_is_held() -> None:
    ports = Ports(23_000, 24_200, 300)
    seen = [ports.take() for _ in range(4)]
    assert len(set(seen)) == 4
    assert ports.take() == seen[0]
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", seen[1]))
        held.listen()
        assert ports.take() == seen[2]


def test_no_port_left_is_an_error_that_says_what_to_do() -> None:
    ports = Ports(23_000, 23_001, 300)
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", ports.take()))
        held.listen()
        with pytest.raises(OSError, match="stop what holds them"):
            ports.take()
