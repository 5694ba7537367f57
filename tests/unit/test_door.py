"""The socket door over a clerk that does as it is told: nobody who comes in holds anybody else up (W5, X10)."""

from __future__ import annotations

import json
import os
import resource
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost.adapters.descriptors import free_descriptors
from fencepost.adapters.door import DoorLimits, SocketDoor, place
from fencepost.adapters.door.place import (
    ADDRESS_BYTES_MAX,
    bound_socket,
    folder_that_would_do,
    folders_for,
    remove_socket,
)
from fencepost.adapters.door.room import links_within
from fencepost.ports.door import Answer, Asked
from fencepost.ports.errors import StorageUnavailable
from fencepost.sdk.wire import Connection, Refused, Unreachable

SMALL = DoorLimits(
    line_bytes_max=1_000,
    payload_bytes_max=4_000,
    held_bytes_max=8_000,
    strangers_max=8,
    links_per_sender_max=3,
    line_s=0.6,
    held_s=0.6,
    reply_s=0.6,
)


class Told:
    """A clerk that knows senders by the first letter of their token."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.answering = 0
        self.most: dict[str, int] = {}
        self.running: dict[str, int] = {}
        self.lock = threading.Lock()
        self.order: list[Any] = []

    def read(self, line: bytes) -> Asked | Answer:
        try:
            request = json.loads(line)
            who, op = request["token"][:1], request["op"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return self.refuse("syntax", "no request")
        if who == "z":
            return self.refuse("stale_fence", "over")
        size = request.get("bytes")
        if size is not None and (not isinstance(size, int) or size < 0):
            return self.refuse("bad_value", "no size")
        return Asked(
            who=who, request=(op, request), payload_bytes=size, reply_bytes=request.get("back", 0), slow=op == "slow"
        )

    def answer(self, asked: Asked, payload: bytes | None) -> Answer:
        op, request = asked.request
        with self.lock:
            self.running[asked.who] = self.running.get(asked.who, 0) + 1
            self.most[asked.who] = max(self.most.get(asked.who, 0), self.running[asked.who])
            self.order.append(request.get("n"))
        try:
            if op in ("wait", "slow"):
                self.gate.wait(20)
            if op == "fail":
                raise ValueError("a fault")
            back = request.get("back")
            if back is not None:
                return Answer(reply={"ok": True, "bytes": back}, payload=b"b" * back)
            return Answer(reply={"ok": True, "n": request.get("n"), "got": len(payload or b"")})
        finally:
            with self.lock:
                self.running[asked.who] -= 1

    def refuse(self, code: str, message: str, who: str = "") -> Answer:
        error = {"code": code, "message": message, "where": None, "next": ""}
        return Answer(reply={"ok": False, "error": error, "exit": 2})


class Opened:
    def __init__(self, folder: Path, limits: DoorLimits) -> None:
        self.clerk = Told()
        self.faults: list[Exception] = []
        self.door = SocketDoor([folder], limits)
        self.door.open(self.clerk, self.faults.append)

    def link(self) -> socket.socket:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(10)
        link.connect(self.door.address)
        return link

    def say(self, token: str, op: str, payload: bytes | None = None, **fields: Any) -> tuple[dict[str, Any], bytes]:
        client = self.client(token)
        try:
            return client.ask(op, payload, **fields)
        finally:
            client.close()

    def client(self, token: str) -> Connection:
        return Connection(self.door.address, token, timeout_s=20)


@contextmanager
def opened(folder: Path, limits: DoorLimits = SMALL) -> Iterator[Opened]:
    made = Opened(folder, limits)
    try:
        yield made
    finally:
        made.clerk.gate.set()
        made.door.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fencepost-door")]


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Opened]:
    with opened(tmp_path / "r") as made:
        yield made


def ask(token: str, op: str = "echo", **fields: Any) -> bytes:
    return json.dumps({"token": token, "op": op, **fields}).encode() + b"\n"


def read_line(link: socket.socket) -> Any:
    data = b""
    while not data.endswith(b"\n"):
        piece = link.recv(1)
        if not piece:
            return None
        data += piece
    return json.loads(data)


def is_ended(link: socket.socket) -> bool:
    try:
        while link.recv(65_536):
            continue
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def test_many_requests_of_one_connection_are_answered_in_their_order(door: Opened) -> None:
    with door.link() as link:
        link.sendall(b"".join(ask("a", n=n) for n in range(50)))
        assert [read_line(link)["n"] for _ in range(50)] == list(range(50))


def test_a_request_may_come_byte_by_byte(door: Opened) -> None:
    with door.link() as link:
        for byte in ask("a", n=7, bytes=3) + b"xyz":
            link.sendall(bytes([byte]))
        assert read_line(link) == {"ok": True, "n": 7, "got": 3}


def test_payloads_go_both_ways_between_requests(door: Opened) -> None:
    client = door.client("a")
    for size in (0, 1, 999, 1_001, 4_000):
        assert client.ask("echo", b"p" * size)[0]["got"] == size
        assert client.ask("echo", back=size)[1] == b"b" * size
    client.close()


@pytest.mark.parametrize("past", [-1, 0, 1])
def test_a_line_has_a_bound(door: Opened, past: int) -> None:
    empty = len(ask("a", pad="")) - 1
    line = ask("a", pad="x" * (SMALL.line_bytes_max - empty + past))
    assert len(line) - 1 == SMALL.line_bytes_max + past
    with door.link() as link:
        link.sendall(line)
        reply = read_line(link)
        assert reply["ok"] is (past <= 0)
        if past > 0:
            assert reply["error"]["code"] == "too_large"
            assert is_ended(link)


@pytest.mark.parametrize("past", [-1, 0, 1])
def test_a_payload_has_a_bound(door: Opened, past: int) -> None:
    size = SMALL.payload_bytes_max + past
    with door.link() as link:
        link.sendall(ask("a", bytes=size) + b"x" * size)
        reply = read_line(link)
    assert reply.get("got") == (size if past <= 0 else None)
    assert past <= 0 or reply["error"]["code"] == "too_large"


def test_an_endless_line_is_cut_off_without_being_kept(door: Opened) -> None:
    with door.link() as link, suppress(ConnectionError):
        for _ in range(1_000):
            link.sendall(b"x" * 10_000)
    with door.link() as link:
        link.sendall(ask("a", n=1))
        assert read_line(link)["n"] == 1


@pytest.mark.parametrize("begun", [b"", b"{", ask("a", n=1) + b'{"half'])
def test_whoever_does_not_finish_a_line_is_shown_out(door: Opened, begun: bytes) -> None:
    began = time.monotonic()
    with door.link() as slow, door.link() as other:
        slow.sendall(begun)
        other.sendall(ask("b", n=1))
        assert read_line(other)["n"] == 1
        assert time.monotonic() - began < SMALL.line_s
        assert is_ended(slow)
        assert time.monotonic() - began < 8


def test_a_line_that_comes_too_slowly_is_no_line(door: Opened) -> None:
    with door.link() as slow, pytest.raises(ConnectionError):
        for _ in range(100):
            slow.sendall(b"x")
            time.sleep(0.05)


def test_a_sender_that_has_asked_may_be_silent(door: Opened) -> None:
    with door.link() as link:
        link.sendall(ask("a", n=1))
        assert read_line(link)["n"] == 1
        time.sleep(SMALL.line_s * 2)
        link.sendall(ask("a", n=2))
        assert read_line(link)["n"] == 2


def test_a_payload_that_does_not_come_is_given_up(door: Opened) -> None:
    with door.link() as link:
        link.sendall(ask("a", bytes=3_000) + b"xx")
        assert is_ended(link)
    assert door.say("a", "echo", b"x" * 3_000)[0]["got"] == 3_000


def test_strangers_make_room_for_each_other(door: Opened) -> None:
    crowd = []
    for _ in range(400):
        crowd.append(door.link())
        if len(crowd) % 100 == 0:
            with door.link() as link:
                link.sendall(ask("a", n=len(crowd)))
                assert read_line(link)["n"] == len(crowd)
            doors = [thread for thread in threading.enumerate() if thread.name.startswith("fencepost-door")]
            assert len(doors) == SMALL.answerers + SMALL.slow_answerers + 1
            assert len(door.door._links) <= SMALL.strangers_max + 1
    for link in crowd:
        link.close()


def test_without_a_descriptor_left_those_inside_are_served(door: Opened) -> None:
    client = door.client("a")
    assert client.ask("echo", n=1)[0]["n"] == 1
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    knocking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    resource.setrlimit(resource.RLIMIT_NOFILE, (knocking.fileno() + 1, limits[1]))
    try:
        knocking.connect(door.door.address)
        looked = []
        let_in = door.door._let_in
        door.door._let_in = lambda: (looked.append(1), let_in())[1]  # type: ignore[method-assign]  # counts the looks
        for number in range(20):
            assert client.ask("echo", n=number)[0]["n"] == number
            time.sleep(0.02)
        assert 0 < len(looked) < 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    knocking.settimeout(10)
    knocking.sendall(ask("b", n=7))
    assert read_line(knocking)["n"] == 7
    knocking.close()
    client.close()
    assert highest < limits[0]
    assert door.faults == []


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder on a path that leaves room for the name of a socket, whatever names the tests' own folders have."""
    with tempfile.TemporaryDirectory(prefix="fp-", dir="/tmp") as folder:
        yield Path(folder)


@contextmanager
def few_descriptors(more: int) -> Iterator[None]:
    """A process that may open only so many more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = free_descriptors()
    assert free is not None
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[0] - free + more, limits[1]))
    try:
        assert free_descriptors() == more
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(sys.platform != "linux", reason="the open files of a process are counted in /proc")
@pytest.mark.parametrize(("more", "links"), [(3_000, 1_000), (300, 100), (60, 20), (9, 4), (0, 4)])
def test_connections_have_a_share_of_the_descriptors(more: int, links: int) -> None:
    with few_descriptors(more):
        assert links_within(1_000) == links


def test_whoever_holds_most_connections_idle_makes_room_for_the_next(door: Opened) -> None:
    """However few there may be, everybody who asks is answered; what was asked and not yet read is not lost."""
    door.door._links_max = 6
    held = {who: [door.link() for _ in range(count)] for who, count in (("a", 3), ("b", 2), ("c", 1))}
    for who, links in held.items():
        for link in links:
            link.sendall(ask(who))
            assert read_line(link)["ok"]
    for who in "dca":
        assert door.say(who, "echo", n=5)[0]["n"] == 5
        until(lambda: len(door.door._links) <= 6)
    assert is_ended(held["a"][0]), "the oldest of whoever has most"
    assert not any(map(is_open_and_ended, held["c"]))
    held["c"][0].sendall(ask("c", "echo", n=9))
    assert read_line(held["c"][0])["n"] == 9
    for link in (link for links in held.values() for link in links):
        link.close()
    assert door.faults == []


def is_open_and_ended(link: socket.socket) -> bool:
    link.setblocking(False)
    try:
        return link.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    finally:
        link.settimeout(10)


def test_where_every_connection_is_in_use_the_next_one_is_turned_away(door: Opened) -> None:
    door.door._links_max = 2
    door.clerk.gate.clear()
    links = []
    for who in "ab":
        links.append(door.link())
        links[-1].sendall(ask(who, "wait"))
        until(partial(door.clerk.running.__contains__, who))
    links.append(door.link())
    assert is_ended(links[2])
    door.clerk.gate.set()
    assert [read_line(link)["ok"] for link in links[:2]] == [True, True]
    for link in links:
        link.close()


def test_a_sender_has_a_bounded_number_of_connections(door: Opened) -> None:
    links = [door.link() for _ in range(4)]
    replies = []
    for link in links:
        link.sendall(ask("a"))
        replies.append(read_line(link))
    assert [reply["ok"] for reply in replies] == [True, True, True, False]
    assert replies[3]["error"]["code"] == "busy"
    links[0].close()
    until(lambda: door.say("a", "echo", n=1)[0]["n"] == 1)
    for link in links:
        link.close()


def test_a_connection_belongs_to_one_sender(door: Opened) -> None:
    with door.link() as link:
        link.sendall(ask("a") + ask("b"))
        assert read_line(link)["ok"] is True
        assert read_line(link)["error"]["code"] == "denied"
        assert is_ended(link)


def test_one_request_of_a_sender_is_answered_at_a_time_and_others_go_on(door: Opened) -> None:
    door.clerk.gate.clear()
    first, second = door.link(), door.link()
    first.sendall(ask("a", "wait", n=1))
    until(lambda: door.clerk.order == [1])
    second.sendall(ask("a", "wait", n=2))
    began = time.monotonic()
    assert door.say("b", "echo", n=3)[0]["n"] == 3
    assert time.monotonic() - began < 5
    assert door.clerk.order == [1, 3]
    door.clerk.gate.set()
    assert read_line(first)["n"] == 1
    assert read_line(second)["n"] == 2
    assert door.clerk.most["a"] == 1
    first.close()
    second.close()


def test_what_needs_no_answerer_is_told_while_all_of_them_wait(door: Opened) -> None:
    door.clerk.gate.clear()
    links = []
    for sender in "abcd":
        links.append(door.link())
        links[-1].sendall(ask(sender, "wait"))
    until(lambda: len(door.clerk.order) == 4)
    with pytest.raises(Refused, match="stale_fence"):
        door.say("z", "echo")
    door.clerk.gate.set()
    for link in links:
        assert read_line(link)["ok"] is True
        link.close()


def test_whoever_does_not_read_a_reply_is_shown_out(door: Opened) -> None:
    with door.link() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        with suppress(BlockingIOError):
            deaf.setblocking(False)
            for _ in range(5_000):
                deaf.sendall(ask("a", back=4_000))
        assert door.say("b", "echo", n=1)[0]["n"] == 1
        deaf.settimeout(10)
        time.sleep(SMALL.reply_s + 0.6)
        assert is_ended(deaf)


def test_payloads_have_one_bound_together_and_small_requests_pass_by(door: Opened) -> None:
    held = []
    for sender in "ab":
        held.append(door.link())
        held[-1].sendall(ask(sender, bytes=4_000) + b"x")
    time.sleep(0.1)
    with door.link() as waiting:
        waiting.sendall(ask("c", bytes=4_000, n=3) + b"x" * 4_000)
        assert door.say("d", "echo", b"x" * 1_000, n=4)[0]["n"] == 4
        held[0].sendall(b"x" * 3_999)
        assert read_line(held[0])["got"] == 4_000
        assert read_line(waiting)["n"] == 3
    for link in held:
        link.close()


def test_a_sender_has_room_for_one_payload_at_a_time(door: Opened) -> None:
    slow, second = door.link(), door.link()
    slow.sendall(ask("a", bytes=4_000, n=1) + b"x")
    time.sleep(0.05)
    second.sendall(ask("a", bytes=4_000, n=2) + b"x" * 3_999)
    time.sleep(0.05)
    with door.link() as other:
        other.sendall(ask("b", bytes=4_000, n=3) + b"x" * 4_000)
        assert read_line(other).get("n") == 3
    slow.sendall(b"x" * 3_999)
    second.sendall(b"x")
    assert [read_line(slow)["n"], read_line(second)["n"]] == [1, 2]
    slow.close()
    second.close()


def test_whoever_finds_no_room_is_told(tmp_path: Path) -> None:
    with opened(tmp_path / "r", DoorLimits(**{**_fields(SMALL), "held_bytes_max": 4_000})) as door:
        door.clerk.gate.clear()
        with door.link() as link, door.link() as late:
            link.sendall(ask("a", "wait", bytes=4_000) + b"x" * 4_000)
            until(lambda: door.clerk.order)
            late.sendall(ask("b", bytes=4_000))
            assert read_line(late)["error"]["code"] == "busy"
            door.clerk.gate.set()
            assert read_line(link)["got"] == 4_000


def _fields(limits: DoorLimits) -> dict[str, Any]:
    return {name: getattr(limits, name) for name in limits.__struct_fields__}


def test_a_fault_of_the_clerk_is_told_and_costs_one_answer(door: Opened) -> None:
    with pytest.raises(Refused, match="internal_error"):
        door.say("a", "fail")
    assert [type(fault) for fault in door.faults] == [ValueError]
    assert door.say("a", "echo", n=1)[0]["n"] == 1


def test_whoever_hangs_up_in_the_middle_is_forgotten(door: Opened) -> None:
    for begun in (b"", b"{", ask("a"), ask("a", bytes=4_000) + b"x", ask("a", back=4_000), ask("a") * 20):
        for _ in range(6):
            with door.link() as link:
                link.sendall(begun)
    until(lambda: not door.door._links)
    assert (door.door._held_bytes, door.door._holders, door.door._by_sender, door.door._strangers) == (0, set(), {}, {})
    assert door.say("a", "echo", n=1)[0]["n"] == 1
    assert door.faults == []


def test_closing_waits_for_nobody(tmp_path: Path) -> None:
    with opened(tmp_path / "r") as door:
        door.clerk.gate.clear()
        links = [door.link() for _ in range(3)]
        links[0].sendall(ask("a", "wait"))
        links[1].sendall(b"{half")
        until(lambda: door.clerk.order)
        began = time.monotonic()
        door.door.close()
        assert time.monotonic() - began < 8
        assert not os.path.exists(door.door.address)
        assert all(is_ended(link) for link in links)
        for link in links:
            link.close()
        door.clerk.gate.set()
        with pytest.raises(Unreachable):
            door.say("a", "echo")
        until(lambda: not [t for t in threading.enumerate() if t.name.startswith("fencepost-door")])


def test_a_client_whose_connection_broke_asks_again(tmp_path: Path) -> None:
    with opened(tmp_path / "r", DoorLimits(**{**_fields(SMALL), "idle_s": 0.3})) as door:
        client = door.client("a")
        assert client.ask("echo", n=1)[0]["n"] == 1
        until(lambda: not door.door._links)
        assert client.ask("echo", n=2)[0]["n"] == 2
        client.close()


_PIECES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from(
            [
                b"\n",
                b"{}\n",
                b"[" * 900 + b"\n",
                ask("a"),
                ask("b", bytes=5),
                ask("a", bytes=-1),
                ask("a", bytes="x"),
                ask("z"),
                b"x" * 1_100,
                ask("a", back=10),
                b'"\xff\x00\n',
            ]
        ),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=_PIECES)
def test_whatever_is_sent_the_door_stays_open(door: Opened, pieces: list[bytes]) -> None:
    with door.link() as link, suppress(ConnectionError):
        for piece in pieces:
            link.sendall(piece)
        link.shutdown(socket.SHUT_WR)
        is_ended(link)
    assert door.say("c", "echo", n=1)[0]["n"] == 1
    assert door.door._threads[0].is_alive()


def test_only_its_user_may_enter_the_folder(door: Opened) -> None:
    path = Path(door.door.address)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(os.fsencode(path)) <= ADDRESS_BYTES_MAX


def test_a_home_on_a_long_path_has_its_socket_elsewhere(tmp_path: Path) -> None:
    home = tmp_path / ("h" * 120)
    home.mkdir()
    with tempfile.TemporaryDirectory(prefix="fp-") as short:  # that of a test has a path of any length
        running = Path(short)
        folders = folders_for(home, "0123456789abcdef", {"XDG_RUNTIME_DIR": str(running)})
        foretold = folder_that_would_do(folders[:2])
        assert not list(running.iterdir()), "it is only asked about"
        listener, path = bound_socket(folders[:2])
        listener.close()
        assert foretold == Path(path).parent == running / "fencepost" / "0123456789ab"


def test_a_temporary_folder_on_a_long_path_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of an attempt is, in which a worker of another home runs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("t" * 120)))
    folders = folders_for(tmp_path / ("h" * 120), "fedcba9876543210", {})
    listener, path = bound_socket(folders)
    listener.close()
    remove_socket(path)
    assert Path(path).parent == Path("/tmp") / f"fencepost-{os.geteuid()}" / "fedcba987654"


def test_a_folder_of_somebody_else_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    open_to_all = tmp_path / "all"
    open_to_all.mkdir(mode=0o777)
    open_to_all.chmod(0o777)
    (tmp_path / "file").write_text("")
    folders = [tmp_path / "link", open_to_all / "run", tmp_path / "file", tmp_path / "file" / "run"]
    with pytest.raises(StorageUnavailable, match="no folder takes a socket"):
        bound_socket(folders)
    assert folder_that_would_do(folders) is None


def test_sockets_of_workers_that_are_gone_are_removed(tmp_path: Path) -> None:
    gone, _ = bound_socket([tmp_path / "r"])
    gone.close()
    living, path = bound_socket([tmp_path / "r"])
    third, other = bound_socket([tmp_path / "r"])
    assert sorted(os.listdir(tmp_path / "r")) == sorted([Path(path).name, Path(other).name])
    living.close()
    third.close()


def test_w5_slow_requests_hold_up_no_quick_ones(door: Opened) -> None:
    door.clerk.gate.clear()
    most = SMALL.slow_answerers + 2
    slow = [threading.Thread(target=door.say, args=(chr(ord("a") + number), "slow")) for number in range(most)]
    for thread in slow:
        thread.start()
    while len(door.clerk.order) < SMALL.slow_answerers:
        time.sleep(0.01)
    assert door.say("x", "echo", n=7)[0]["n"] == 7
    assert len(door.clerk.order) == SMALL.slow_answerers + 1
    door.clerk.gate.set()
    for thread in slow:
        thread.join()
    assert len(door.clerk.order) == most + 1


def test_a_folder_goes_with_the_last_socket_in_it(short_path: Path) -> None:
    above = short_path / "fencepost-0"
    sockets = [bound_socket([above / "0123456789ab"]) for _ in range(2)]
    for left, (listener, path) in zip((1, 0), sockets, strict=True):
        listener.close()
        remove_socket(path)
        assert above.exists() == bool(left)
    assert short_path.exists()
    (short_path / "home").mkdir()
    (short_path / "home" / "store.db").touch()
    listener, path = bound_socket([short_path / "home" / "run"])
    listener.close()
    remove_socket(path)
    assert [each.name for each in (short_path / "home").iterdir()] == ["store.db"]


def test_what_dead_workers_of_other_stores_left_is_swept_by_the_next_one(short_path: Path) -> None:
    above = short_path / "fencepost-0"
    dead, _ = bound_socket([above / "000000000000"])
    dead.close()
    living, address = bound_socket([above / "111111111111"])
    (above / "222222222222").mkdir(mode=0o700)
    (above / "333333333333").mkdir()
    (above / "333333333333" / "file").touch()
    (above / "scratch").mkdir()
    killed = above / "444444444444"
    killed.mkdir(mode=0o700)
    for name, age_s in (("old.new", 120), ("young.new", 0)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as unready:
            unready.bind(str(killed / name))
        os.utime(killed / name, (time.time() - age_s,) * 2)
    listener, path = bound_socket([above / "555555555555"])
    assert sorted(each.name for each in above.iterdir()) == [digit * 12 for digit in "1345"] + ["scratch"]
    assert [each.name for each in killed.iterdir()] == ["young.new"], "it may be about to listen"
    assert Path(address).exists()
    listener.close()
    living.close()
    remove_socket(path)


def test_nothing_is_looked_for_beside_the_folder_of_a_home(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    listener, path = bound_socket([tmp_path / "run"])
    assert (tmp_path / "work").is_dir()
    listener.close()
    remove_socket(path)


def test_a_folder_that_goes_at_the_same_moment_is_made_again(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = short_path / "fencepost-0" / "0123456789ab"
    listening = place._listening
    gone = []

    def listen(path: str) -> socket.socket:
        if len(gone) < 3:
            gone.append(path)
            os.rmdir(folder)
            os.rmdir(folder.parent)
        return listening(path)

    monkeypatch.setattr(place, "_listening", listen)
    listener, path = bound_socket([folder])
    assert len(gone) == 3 and Path(path).exists()
    listener.close()
    remove_socket(path)


@pytest.mark.parametrize("how", ["removed", "replaced", "folder"])
def test_a_door_whose_name_is_taken_away_is_found_again_under_it(tmp_path: Path, how: str) -> None:
    """Programs that run know no other path."""
    with opened(tmp_path / "home" / "r") as door:
        connected = door.client("a")
        assert connected.ask("echo", n=1)[0]["n"] == 1
        path = Path(door.door.address)
        path.unlink()
        if how == "folder":
            path.parent.rmdir()
        elif how == "replaced":
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
                other.bind(str(path))
        until = time.monotonic() + 20
        while not is_heard(path):
            assert time.monotonic() < until
            time.sleep(0.05)
        assert door.say("b", "echo", n=2)[0]["n"] == 2
        assert connected.ask("echo", n=3)[0]["n"] == 3, "whoever was in stays in"
        connected.close()
        assert door.faults == []
    assert not path.exists()


def is_heard(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def test_a_socket_that_is_not_there_for_a_moment_is_waited_for(door: Opened) -> None:
    client = door.client("a")
    Path(door.door.address).unlink()
    assert client.ask("echo", n=1)[0]["n"] == 1
    client.close()


def test_a_door_that_cannot_have_its_name_back_says_so_once_and_goes_on_trying(tmp_path: Path) -> None:
    with opened(tmp_path / "r") as door:
        path = Path(door.door.address)
        path.unlink()
        path.mkdir()
        until = time.monotonic() + 20
        while not door.faults:
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(1.2)
        [fault] = door.faults
        assert isinstance(fault, StorageUnavailable) and str(path) in fault.message
        path.rmdir()
        while not is_heard(path):
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_door_whose_home_is_gone_makes_no_folder_there(tmp_path: Path) -> None:
    made = SocketDoor([tmp_path / "home" / "r"], SMALL, may_return=lambda: False)
    made.open(Told(), [].append)
    path = Path(made.address)
    path.unlink()
    path.parent.rmdir()
    path.parent.parent.rmdir()
    time.sleep(1.5)
    assert not path.parent.parent.exists()
    made.close()
