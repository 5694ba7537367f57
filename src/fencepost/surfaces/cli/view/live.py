"""The live view: follows the store, and draws at most some times a second, when something changed or a second passed.

Whoever waits calls `tell` with each look at a store that has changed, and `tick` several times a second. Nothing is
read on a tick but the tails of running logs that are seen; elapsed times tick by the host's own clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TextIO

from fencepost.app import App
from fencepost.core.reasons import WAITS_AND_ENDS
from fencepost.core.views import is_blocked
from fencepost.kernel.read import Look
from fencepost.services.means import estimated_now_us
from fencepost.surfaces.cli.accounts import title_of
from fencepost.surfaces.cli.living import is_orphan, living_workers
from fencepost.surfaces.cli.typed import here
from fencepost.surfaces.cli.view.draw import Place, chosen, draw
from fencepost.surfaces.cli.view.follow import Follower
from fencepost.surfaces.cli.view.logs import last_log_line
from fencepost.surfaces.cli.view.picture import Choice, Detail
from fencepost.surfaces.cli.view.reasons import Reasons
from fencepost.surfaces.cli.view.terminal import Terminal
from fencepost.surfaces.cli.view.wanted import has_colour, marks_for

REDRAW_S: Final = 0.125  # between two drawings at least
SECOND_S: Final = 1.0  # after that long times have moved on
LOGS_S: Final = 0.25  # between two looks at the logs that are seen
ALIVE_S: Final = 2.0  # between two looks at who is alive
LOGS_MAX: Final = 64  # logs looked at in one drawing
ASKING_MAX: Final = 2  # questions whose command is shown
NOBODY: Final = "no worker is alive in this home: fencepost worker start"


class LiveView:
    """One plan, or one order, on a terminal, for the length of a `with` block."""

    def __init__(
        self, app: App, out: TextIO, follower: Follower, *, hint: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._out = out
        self._follower = follower
        self._reasons = Reasons(app, follower)
        self._hint = hint
        self._notices: list[str] = []
        self._monotonic = monotonic
        self._marks = marks_for(out)
        self.terminal = Terminal(out, colour=has_colour(app.environment, terminal=True))
        self._dirty = True
        self._drawn_at = 0.0
        self._drawn_second = -1
        self._drawn_size = (0, 0)
        self._logs_at = 0.0
        self._logs: dict[str, str] = {}
        self._alive_at = 0.0
        self._gone: frozenset[str] = frozenset()
        self._nobody = False
        self._seen: tuple[str, ...] = ()
        self._titles: dict[str, str] = {}  # what an answer may name the orders by that ask

    def open(self) -> LiveView:
        self.terminal.open()
        return self

    def tell(self, look: Look) -> None:
        """Take in what has changed up to this look."""
        if self._follower.update(look):
            self._dirty = True
            self._logs_at = 0.0
        titles = {order.order: title_of(look, order) for order in self._follower.asking()[:ASKING_MAX]}
        if titles != self._titles:
            self._titles, self._dirty = titles, True

    def say(self, text: str) -> None:
        """Show a notice from now on."""
        if text not in self._notices:
            self._notices.append(text)
        self._dirty = True

    def tick(self, *, now: bool = False) -> None:
        """Draw if something has changed or a second has passed; with `now` whenever it was drawn last."""
        if not self.terminal.attend():
            return
        at = self._monotonic()
        if not now and at - self._drawn_at < REDRAW_S:
            return
        self._look_at_logs(at)
        self._look_who_lives(at)
        size = self.terminal.size()
        if not now and not self._dirty and int(at) == self._drawn_second and size == self._drawn_size:
            return
        self._draw(size)
        self._dirty, self._drawn_at, self._drawn_second, self._drawn_size = False, at, int(at), size

    def restore(self) -> None:
        """Give the terminal back at once, from a signal's handler."""
        self.terminal.restore()

    def keep(self) -> None:
        """Draw for the last time, so that the picture stays when the view is closed."""
        self._hint = ""
        self._logs = {}
        self._logs_at = self._monotonic() + SECOND_S
        self.tick(now=True)
        self.terminal.close()

    def close(self) -> None:
        """Take the picture away, unless it was kept, and give the terminal back."""
        self.terminal.clear()
        self.terminal.close()

    def _draw(self, size: tuple[int, int]) -> None:
        columns, rows = size
        place = Place(columns, max(rows - 1, 1), self._marks)
        picture = self._follower.picture(notices=self._all_notices(), hint=self._hint)
        choice = chosen(picture, place)
        self._seen = tuple(row.order for row in choice.rows)
        if missing := self._reasons.missing(self._seen):
            with self._app.kernel.reader.look() as look:
                self._reasons.read(look, missing)
        self.terminal.draw(draw(picture, choice, self._details(choice), self.now_us(), place))

    def _details(self, choice: Choice) -> dict[str, Detail]:
        return {
            row.order: self._reasons.detail(
                row.order,
                gone=self._follower.orders[row.order].attempt in self._gone,
                log=self._logs.get(row.order, ""),
            )
            for row in choice.rows
        }

    def now_us(self) -> int:
        """Logical time, as the next observation will most likely say."""
        return estimated_now_us(self._follower.clock, self._app.kernel.clock.read())

    def _all_notices(self) -> tuple[str, ...]:
        notices = list(self._notices)
        if is_blocked(self._follower.clock):
            notices.append(WAITS_AND_ENDS["clock_reconciliation_required"].sentence)
        if self._nobody:
            notices.append(here(NOBODY))
        asking = self._follower.asking()
        for order in asking[:ASKING_MAX]:
            name = self._titles.get(order.order, order.order)
            notices.append(here(f"{order.task} asks: fencepost order answer {name} VALUE"))
        return tuple(notices)

    def _look_at_logs(self, at: float) -> None:
        """Last lines of what runs and is seen; of a failure what its summary says is enough."""
        if at - self._logs_at < LOGS_S:
            return
        self._logs_at = at
        found: dict[str, str] = {}
        seen = set(self._seen)
        for attempt in self._follower.running():
            if attempt.order in seen and len(found) < LOGS_MAX:
                order = self._follower.orders[attempt.order]
                verifies = order.reason == "waiting_for_verification"
                line = last_log_line(self._app, attempt.attempt, verifier=verifies)
                # A folder is taken away as soon as the attempt has ended: what it said last stays until then.
                found[attempt.order] = line or self._logs.get(attempt.order, "")
        if found != self._logs:
            self._logs = found
            self._dirty = True

    def _look_who_lives(self, at: float) -> None:
        if at - self._alive_at < ALIVE_S:
            return
        self._alive_at = at
        reading = self._app.kernel.clock.read()
        running = self._follower.running()
        # By attempt: an order whose next attempt has begun since this look does not live on paper only.
        gone = frozenset(one.attempt for one in running[:LOGS_MAX] if is_orphan(one, self._app.locks, reading))
        nobody = False
        if not [one for one in running if one.attempt not in gone] and self._has_ready():
            with self._app.kernel.reader.look() as look:
                nobody = not living_workers(look, self._app.locks)
        if (gone, nobody) != (self._gone, self._nobody):
            self._gone, self._nobody, self._dirty = gone, nobody, True

    def _has_ready(self) -> bool:
        return any(order.state == "ready" for order in self._follower.current())


def live_view(app: App, out: TextIO, look: Look, *, hint: str, plan: str | None, order: str | None = None) -> LiveView:
    """A view of a plan, or of one order with what it waits for, that has taken the terminal."""
    view = LiveView(app, out, Follower(look, plan=plan, order=order), hint=hint)
    view.tell(look)
    return view.open()
