"""The socket door: one thread that reads and writes for everybody and waits for nobody, and a few that answer.

The first thread never blocks: it takes lines and payloads as they come, knows their senders through the clerk, queues
what is complete, and sends replies as far as they are taken. What is answered is answered by `answerers` threads, one
request of an attempt at a time, so that however many connections a program opens it has one of them at most. Memory
has one bound for all payloads together (`held_bytes_max`): a request that would pass it waits for its turn.

Whoever has not named an attempt yet is a stranger: strangers have few places, and the one that came first makes room.
Where all places are taken, a stranger goes first, and then one of whoever has most that nothing is asked on (`room`).
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from fencepost.adapters.door.link import Link
from fencepost.adapters.door.place import bound_socket, listen_again, name_of, peer_is_ours, remove_socket
from fencepost.adapters.door.room import DoorLimits, idle_links, links_within
from fencepost.ports.door import Answer, Asked, Clerk
from fencepost.ports.errors import StorageUnavailable

_CLOSE_WAIT_S: Final = 2.0
_ACCEPTED_MAX: Final = 64  # in one turn
_FULL_S: Final = 0.01
_WATCHED: Final = {"line": selectors.EVENT_READ, "payload": selectors.EVENT_READ, "reply": selectors.EVENT_WRITE}
_TICK_S: Final = 0.25
"""How late a time limit may be noticed."""
_NAME_S: Final = 0.5  # between looks whether the socket has its name still
_NAMELESS_LOOKS: Final = 2
"""So many in a row must miss the name: whoever removes a whole folder is not met half-way."""


class SocketDoor:
    """The port's `Door`. Made closed; `open` once."""

    def __init__(
        self,
        folders: Sequence[Path],
        limits: DoorLimits | None = None,
        *,
        may_return: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_return` says whether the path may be made anew where somebody has taken it away."""
        self._folders = tuple(folders)
        self._may_return = may_return
        self._limits = limits or DoorLimits()
        self._address = ""
        self._threads: list[threading.Thread] = []
        self._done: deque[tuple[Link, Answer]] = deque()  # answered, and not yet sent
        self._work: queue.SimpleQueue[Link | None] = queue.SimpleQueue()
        self._slow_work: queue.SimpleQueue[Link | None] = queue.SimpleQueue()
        self._links: dict[Link, None] = {}
        self._strangers: dict[Link, None] = {}  # in the order in which they came
        self._by_sender: Counter[str] = Counter()
        self._busy: set[str] = set()  # senders with a request that is being answered
        self._queued: dict[str, deque[Link]] = {}
        self._unheld: dict[Link, None] = {}  # waiting for room for a payload, in their order
        self._holders: set[str] = set()  # senders that have room
        self._held_bytes = 0
        self._closing = threading.Event()
        self._process_id = os.getpid()

    @property
    def address(self) -> str:
        return self._address

    def open(self, clerk: Clerk, fault: Callable[[Exception], None]) -> None:
        self._listener, self._address = bound_socket(self._folders)
        self._name = name_of(self._address)
        self._nameless = 0  # looks in a row that found another name there, or none
        self._clerk, self._fault = clerk, fault
        self._links_max = links_within(self._limits.links_max)
        self._strangers_max = min(self._limits.strangers_max, max(self._links_max // 2, 1))
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()
        for end in (self._waker, self._woken):
            end.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._threads = [threading.Thread(target=self._serve, name="fencepost-door", daemon=True)]
        for work, count, name in self._lanes():
            self._threads += [
                threading.Thread(target=self._answer_until_closed, args=(work,), name=f"{name}-{n}", daemon=True)
                for n in range(count)
            ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        if not self._threads or self._closing.is_set() or self._process_id != os.getpid():
            return
        self._closing.set()
        for work, count, _ in self._lanes():
            for _ in range(count):
                work.put(None)
        self._wake()
        until = time.monotonic() + _CLOSE_WAIT_S
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))
        self._waker.close()
        remove_socket(self._address)

    def _lanes(self) -> tuple[tuple[queue.SimpleQueue[Link | None], int, str], ...]:
        """(requests, threads that answer them, their name) of what is quick and of what may take its time."""
        return (
            (self._work, self._limits.answerers, "fencepost-door"),
            (self._slow_work, self._limits.slow_answerers, "fencepost-door-slow"),
        )

    # The thread that reads and writes

    def _serve(self) -> None:
        try:
            looked_at = named_at = time.monotonic()
            while not self._closing.is_set():
                for key, _ in self._selector.select(_TICK_S):
                    self._happened(key.fileobj, key.data)
                self._take_answers()
                now = time.monotonic()
                if now - looked_at >= _TICK_S:
                    looked_at = now
                    self._end_late(now)
                if now - named_at >= _NAME_S:
                    named_at = now
                    self._keep_name()
        except Exception as error:
            self._fault(error)
        finally:
            for link in list(self._links):
                link.socket.close()
            self._listener.close()
            self._selector.close()
            self._woken.close()

    def _keep_name(self) -> None:
        """Listen anew, under the same path, where its name was taken away, by a cleaner or by a program: whoever has
        that path would be deaf to us for ever. A folder that is being removed as a whole is left to that."""
        if name_of(self._address) == self._name:
            self._nameless = 0
            return
        self._nameless += 1
        if self._nameless < _NAMELESS_LOOKS or not self._may_return():
            return
        try:
            listener = listen_again(self._address)
        except OSError as error:
            if self._nameless == _NAMELESS_LOOKS:  # told once; it is tried again
                told = f"the socket {self._address} is gone, and cannot be made anew: {error.strerror or error}"
                self._fault(StorageUnavailable(told, next_step="fencepost doctor"))
            return
        self._selector.unregister(self._listener)
        self._listener.close()
        self._listener, self._name, self._nameless = listener, name_of(self._address), 0
        self._selector.register(listener, selectors.EVENT_READ)

    def _happened(self, source: object, link: Link | None) -> None:
        if source is self._listener:
            self._let_in()
        elif link is None:
            with contextlib.suppress(BlockingIOError):
                while self._woken.recv(4_096):
                    continue
        elif link in self._links:
            self._move(link)

    def _let_in(self) -> None:
        for _ in range(_ACCEPTED_MAX):
            try:
                made, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # No descriptor is left, most likely: the stranger that waits longest makes room. Without one whoever
                # knocks goes on knocking, and is not looked at all the time.
                if not self._end_stranger():
                    time.sleep(_FULL_S)
                return
            if not peer_is_ours(made):
                made.close()
                continue
            if len(self._strangers) >= self._strangers_max:
                self._end_stranger()
            if len(self._links) >= self._links_max and not self._make_room():
                made.close()
                continue
            made.setblocking(False)
            link = Link(made, time.monotonic() + self._limits.line_s)
            self._links[link] = self._strangers[link] = None
            self._selector.register(made, selectors.EVENT_READ, link)

    def _make_room(self) -> bool:
        """Take a place from whoever needs it least; whether there was one."""
        links = len(self._links)
        if self._end_stranger() and len(self._links) < links:
            return True
        for link in idle_links(self._links, self._by_sender):
            self._move(link)  # heard once more, as a stranger is
            if link.is_idle:
                self._end(link)
            if link not in self._links:
                return True
        return False

    def _end_stranger(self) -> bool:
        """Make room among strangers; whether there was one. Who came first has had most time to say who it is, and is
        heard once more before it is shown out."""
        link = next(iter(self._strangers), None)
        if link is None:
            return False
        self._move(link)
        if link in self._strangers:
            self._end(link)
        return True

    def _move(self, link: Link) -> None:
        """Take what has come, and go on with the connection as far as that reaches."""
        try:
            if not link.take(self._limits.line_bytes_max):
                self._end(link)
            elif link.state == "payload" and link.is_whole:
                self._queue(link)
        except BlockingIOError:
            return  # it was ready, and is not any more
        except OSError:
            self._end(link)
        self._pump(link)

    def _pump(self, link: Link) -> None:
        """Go on with a connection until it waits for somebody."""
        try:
            while link in self._links:
                if link.state == "line":
                    if not self._next_line(link):
                        return
                elif link.state != "reply" or not link.send():
                    return
                else:
                    self._replied(link)
        except OSError:
            self._end(link)

    def _next_line(self, link: Link) -> bool:
        """Take the next line that has come whole. False where none has."""
        line = link.cut_line()
        if line is None:
            if len(link.buffer) > self._limits.line_bytes_max:
                self._show_out(link, "too_large", f"a line has at most {self._limits.line_bytes_max} bytes")
                return True
            if link.buffer and not link.in_line:
                link.in_line = True
                link.until = time.monotonic() + self._limits.line_s
            return False
        asked = self._clerk.read(line)
        if isinstance(asked, Answer):
            # What follows may be a payload, or of the same kind.
            self._reply(link, msgspec.structs.replace(asked, hang_up=True))
        elif link.who not in ("", asked.who):
            self._show_out(link, "denied", "this connection belongs to another attempt")
        elif not link.who and self._by_sender[asked.who] >= self._limits.links_per_sender_max:
            self._show_out(
                link, "busy", f"the attempt has {self._limits.links_per_sender_max} connections already", asked.who
            )
        elif (asked.payload_bytes or 0) > self._limits.payload_bytes_max:
            self._show_out(
                link, "too_large", f"a payload has at most {self._limits.payload_bytes_max} bytes", asked.who
            )
        else:
            self._asked(link, asked)
        return True

    def _asked(self, link: Link, asked: Asked) -> None:
        if not link.who:
            del self._strangers[link]
            link.who = asked.who
            self._by_sender[link.who] += 1
        link.asked = asked
        if asked.payload_bytes is not None or asked.reply_bytes:
            self._unheld[link] = None
            self._state(link, "hold", self._limits.held_s)
            self._give_room()
        else:
            link.begin_payload(0)
            self._queue(link)

    def _give_room(self) -> None:
        """Let in payloads in their turn, as far as there is room for them and for what goes back. A sender has room
        for one at a time, and what is no longer than a line needs none."""
        full = False
        for link in list(self._unheld):
            size, wanted = link.sizes()
            if wanted > self._limits.line_bytes_max:
                if link.who in self._holders:
                    continue
                full = full or (bool(self._held_bytes) and self._held_bytes + wanted > self._limits.held_bytes_max)
                if full:
                    continue  # and whoever is large and came later waits behind it
                self._held_bytes += wanted
                self._holders.add(link.who)
                link.held_bytes = wanted
            del self._unheld[link]
            link.begin_payload(size)
            if link.is_whole:
                self._queue(link)
            else:
                self._state(link, "payload", self._limits.held_s)

    def _queue(self, link: Link) -> None:
        """What has come whole is answered after whatever else its sender has asked."""
        self._state(link, "queued", None)
        if link.who in self._busy:
            self._queued.setdefault(link.who, deque()).append(link)
            return
        self._busy.add(link.who)
        self._hand_over(link)

    def _hand_over(self, link: Link) -> None:
        slow = link.asked is not None and link.asked.slow
        (self._slow_work if slow else self._work).put(link)

    def _take_answers(self) -> None:
        while self._done:
            link, answer = self._done.popleft()
            waiting = self._queued.get(link.who)
            if waiting:
                self._hand_over(waiting.popleft())
                if not waiting:
                    del self._queued[link.who]
            else:
                self._busy.discard(link.who)
            self._reply(link, answer)
            self._pump(link)

    def _show_out(self, link: Link, code: str, message: str, who: str = "") -> None:
        refused = self._clerk.refuse(code, message, link.who or who)
        self._reply(link, msgspec.structs.replace(refused, hang_up=True))

    def _reply(self, link: Link, answer: Answer) -> None:
        link.put_reply(answer)
        if answer.payload is None:
            self._release(link)
        self._state(link, "reply", self._limits.reply_s)

    def _replied(self, link: Link) -> None:
        """A reply has gone: wait for the next line, of which some may be here already."""
        self._release(link)
        if link.hang_up:
            self._end(link)
            return
        link.asked, link.in_line = None, False
        self._state(link, "line", self._limits.idle_s)

    def _release(self, link: Link) -> None:
        """Give back the room that a request and its reply had."""
        if link.held_bytes:
            self._held_bytes -= link.held_bytes
            self._holders.discard(link.who)
            link.held_bytes = 0
            self._give_room()

    def _state(self, link: Link, state: str, seconds: float | None) -> None:
        link.state = state
        link.until = None if seconds is None else time.monotonic() + seconds
        wanted = _WATCHED.get(state, 0)
        if wanted == link.watched:
            return
        if not link.watched:
            self._selector.register(link.socket, wanted, link)
        elif not wanted:
            self._selector.unregister(link.socket)
        else:
            self._selector.modify(link.socket, wanted, link)
        link.watched = wanted

    def _end_late(self, now: float) -> None:
        for link in [link for link in self._links if link.until is not None and link.until <= now]:
            if link.state == "hold":
                del self._unheld[link]
                self._show_out(link, "busy", "there is no room for the payload now")
                self._pump(link)
            else:
                self._end(link)

    def _end(self, link: Link) -> None:
        """Forget a connection. None is forgotten while its request is being answered."""
        if link not in self._links:
            return
        del self._links[link]
        self._strangers.pop(link, None)
        self._unheld.pop(link, None)
        if link.watched:
            self._selector.unregister(link.socket)
        link.socket.close()
        if link.who:
            self._by_sender[link.who] -= 1
            if not self._by_sender[link.who]:
                del self._by_sender[link.who]
        self._release(link)

    # The threads that answer

    def _answer_until_closed(self, work: queue.SimpleQueue[Link | None]) -> None:
        while (link := work.get()) is not None:
            try:
                answer = self._answered(link)
            except Exception as error:
                self._fault(error)
                answer = self._clerk.refuse("internal_error", "the worker failed; it stops", link.who)
            self._done.append((link, answer))
            self._wake()

    def _answered(self, link: Link) -> Answer:
        asked = link.asked
        if asked is None:
            raise RuntimeError("a connection was queued without having asked for anything")
        return self._clerk.answer(asked, link.payload if asked.payload_bytes is not None else None)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # a full pipe wakes as well, and a closed one belongs to a closed door
            self._waker.send(b"1")
