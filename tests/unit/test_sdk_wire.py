"""The client of the worker's socket: bounds before anything is sent, breaks that are mended, typed words."""

from __future__ import annotations

import json
import os
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.sdk import wire
from fencepost.sdk.client import Attempt
from fencepost.sdk.wire import Connection, Refused, StaleFence, Unreachable

Script = Callable[[int, socket.socket], None]


class Played:
    """A worker that does what a script says with each connection, in turn."""

    def __init__(self, path: Path, script: Script) -> None:
        self.path = str(path)
        self.made = 0
        self._script = script
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            link, _ = self._listener.accept()
            with link:
                if self._script is _STOP:
                    return
                self.made += 1
                with suppress(ConnectionError):
                    self._script(self.made, link)

    def close(self) -> None:
        self._script = _STOP
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(self.path)
        self._thread.join()
        self._listener.close()


def _STOP(number: int, link: socket.socket) -> None:
    raise AssertionError("no script")


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Script], Played]]:
    monkeypatch.setattr(wire, "AGAIN_S", 0.01)
    made: list[Played] = []

    def start(script: Script) -> Played:
        made.append(Played(tmp_path / f"s{len(made)}", script))
        return made[-1]

    yield start
    for one in made:
        one.close()


def line_of(link: socket.socket) -> Any:
    data = b""
    while not data.endswith(b"\n"):
        piece = link.recv(1)
        if not piece:
            raise ConnectionError("the client hung up")
        data += piece
    return json.loads(data)


def answer(link: socket.socket, **fields: Any) -> None:
    link.sendall(wire.encode({"ok": True, **fields}) + b"\n")


def test_a_request_whose_reply_was_lost_is_sent_again(play: Callable[[Script], Played]) -> None:
    asked = []

    def script(number: int, link: socket.socket) -> None:
        asked.append(line_of(link))
        if number == 3:
            answer(link, n=number)
        elif number == 2:
            link.sendall(b'{"ok": true, "n"')

    connection = Connection(play(script).path, "t")
    assert connection.ask("hello")[0]["n"] == 3
    assert asked == [{"op": "hello", "token": "t", "v": 1}] * 3
    connection.close()


def test_a_worker_that_is_gone_is_unreachable(play: Callable[[Script], Played], tmp_path: Path) -> None:
    played = play(lambda number, link: None)
    with pytest.raises(Unreachable, match="unreachable") as gone:
        Connection(played.path, "t").ask("hello")
    assert (gone.value.exit_code, played.made) == (1, wire.TRIES_MAX)
    with pytest.raises(Unreachable):
        Connection(str(tmp_path / "nowhere"), "t").ask("hello")


@pytest.mark.parametrize(
    "reply", [b"no json\n", b"[]\n", b'{"ok": true, "bytes": -1}\n', b'{"ok": true, "bytes": "x"}\n']
)
def test_what_is_no_reply_is_no_answer(play: Callable[[Script], Played], reply: bytes) -> None:
    def script(number: int, link: socket.socket) -> None:
        line_of(link)
        link.sendall(reply)

    with pytest.raises(Unreachable):
        Connection(play(script).path, "t").ask("hello")


def test_an_endless_reply_is_not_kept(play: Callable[[Script], Played], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "REPLY_BYTES_MAX", 100_000)

    def script(number: int, link: socket.socket) -> None:
        line_of(link)
        try:
            while True:
                link.sendall(b"x" * 65_536)
        except ConnectionError:
            return

    with pytest.raises(Unreachable, match="too long"):
        Connection(play(script).path, "t").ask("hello")


def test_busy_is_waited_out(play: Callable[[Script], Played]) -> None:
    def script(number: int, link: socket.socket) -> None:
        for _ in range(3):
            line_of(link)
            link.sendall(wire.encode({"ok": False, "error": {"code": "busy", "message": "later"}, "exit": 5}) + b"\n")
        line_of(link)
        answer(link)

    connection = Connection(play(script).path, "t")
    assert connection.ask("hello")[0]["ok"] is True
    connection.close()


def test_a_crowd_before_the_door_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that is full refuses a connection as unavailable for the moment."""
    monkeypatch.setattr(wire, "AGAIN_S", 0.01)
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        crowd = []
        with suppress(BlockingIOError):
            for _ in range(10):
                crowd.append(socket.socket(socket.AF_UNIX))
                crowd[-1].setblocking(False)
                crowd[-1].connect(path)

        def let_in() -> None:
            for one in crowd:
                one.close()
            for _ in range(len(crowd)):
                link, _ = listener.accept()
                with link, suppress(ConnectionError):
                    line_of(link)
                    answer(link, n=1)
                    return

        later = threading.Timer(0.3, let_in)
        later.start()
        connection = Connection(path, "t")
        assert connection.ask("hello")[0]["n"] == 1
        connection.close()
        later.join()


def test_payloads_go_both_ways(play: Callable[[Script], Played]) -> None:
    def script(number: int, link: socket.socket) -> None:
        for _ in range(2):
            size = line_of(link)["bytes"]
            data = b""
            while len(data) < size:
                data += link.recv(size - len(data))
            answer(link, bytes=size)
            link.sendall(data[::-1])

    connection = Connection(play(script).path, "t")
    assert connection.ask("echo", b"abc\n\x00")[1] == b"\x00\ncba"
    assert connection.ask("echo", b"")[1] == b""
    connection.close()


@pytest.mark.parametrize(
    ("fields", "payload", "code"),
    [
        ({"note": "x" * wire.LINE_BYTES_MAX}, None, "too_large"),
        ({"note": "\ud800"}, None, "lone_surrogate"),
        ({"note": float("nan")}, None, "bad_value"),
        ({"note": object()}, None, "bad_value"),
        ({}, b"x" * (wire.PAYLOAD_BYTES_MAX + 1), "too_large"),
    ],
)
def test_what_cannot_be_said_is_refused_before_it_is_sent(
    fields: dict[str, Any], payload: bytes | None, code: str
) -> None:
    with pytest.raises(Refused) as refused:
        Connection("/nowhere", "t").ask("heartbeat", payload, **fields)
    assert (refused.value.code, refused.value.exit_code) == (code, 2)


def test_words_of_the_worker_are_exceptions(play: Callable[[Script], Played]) -> None:
    error = {"code": "stale_fence", "message": "over", "where": "/x", "next": "stop"}

    def script(number: int, link: socket.socket) -> None:
        line_of(link)
        link.sendall(wire.encode({"ok": False, "error": error, "exit": 5}) + b"\n")
        line_of(link)
        link.sendall(b'{"ok": false}\n')

    connection = Connection(play(script).path, "t")
    with pytest.raises(StaleFence) as stale:
        connection.ask("hello")
    assert (stale.value.code, stale.value.message, stale.value.where, stale.value.next) == tuple(error.values())
    with pytest.raises(Refused) as refused:
        connection.ask("hello")
    assert (refused.value.code, refused.value.exit_code) == ("internal_error", 1)
    connection.close()


def test_a_refusal_says_all_of_itself() -> None:
    refused = StaleFence("stale_fence", "over", "/x", "stop", 5)
    assert str(refused) == "[stale_fence] over; where: /x; next: stop"
    assert str(Refused("denied", "no")) == "[denied] no"
    again = pickle.loads(pickle.dumps(refused))
    assert type(again) is StaleFence and vars(again) == vars(refused) and str(again) == str(refused)


def test_a_forked_child_has_a_connection_of_its_own(play: Callable[[Script], Played]) -> None:
    def script(number: int, link: socket.socket) -> None:
        line_of(link)
        answer(link, n=number)

    played = play(script)
    connection = Connection(played.path, "t")
    assert connection.ask("hello")[0]["n"] == 1
    child = os.fork()
    if child == 0:
        os._exit(10 + int(connection.ask("hello")[0]["n"]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 12
    connection.close()


def test_outside_of_an_attempt_there_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for environment in ({}, {"FENCEPOST_SOCKET": "/x"}, {"FENCEPOST_TOKEN": "x"}):
        with pytest.raises(Unreachable) as nobody:
            Attempt(environment)
        assert (nobody.value.code, nobody.value.exit_code) == ("no_attempt", 2)
    assert issubclass(fencepost.Unreachable, fencepost.Refused)


def test_leaving_by_a_wait_is_an_end_with_0() -> None:
    with pytest.raises(SystemExit) as left:
        raise fencepost.Yield
    assert left.value.code == 0
