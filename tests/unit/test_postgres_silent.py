"""A server that takes connections and never says a word."""

from __future__ import annotations

import socket
import threading

import pytest

from fencepost.ports.errors import StorageUnavailable
from fencepost.storage import postgres


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_server_that_never_answers_is_given_up() -> None:
    """What waits for it has bounds of its own: how often it was tried is counted, not timed."""
    tries: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def accept() -> None:
            kept = []
            while True:
                try:
                    connection, _ = silent.accept()
                except OSError:
                    break
                kept.append(connection)
                tries.append("tried")
            for connection in kept:
                connection.close()

        listener = threading.Thread(target=accept, daemon=True)
        listener.start()
        port = silent.getsockname()[1]
        with pytest.raises(StorageUnavailable, match="timeout"):
            postgres.open(f"postgresql://nobody@127.0.0.1:{port}/none?connect_timeout=2")
        silent.shutdown(socket.SHUT_RDWR)
    listener.join()
    assert 1 <= len(tries) <= 4
