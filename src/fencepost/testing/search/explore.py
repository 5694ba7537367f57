"""Breadth first through a small world, and what the whole graph must show.

Every place is met by every command that somebody could send. The first edge or place that breaks a rule ends the
search, so that its story is a shortest one. When all places are known, the graph is walked backwards from those where
everything has ended or only a person can go on (`waits` judges, and shares nothing with what the product says of
them): whatever is not met on the way is a dead end.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from fencepost.core.decide import Decided
from fencepost.testing.search import rules, waits
from fencepost.testing.search.folding import key_of
from fencepost.testing.search.moves import SYSTEM, Cast, Move, moves_of
from fencepost.testing.search.place import MachineRow, Place, Refold, ask, follow, root_of
from fencepost.testing.search.waits import ONLY_A_PERSON, rest_of
from fencepost.testing.search.worlds import BY_NAME, World

PLACES_MAX = 3_000_000


class Step(msgspec.Struct, frozen=True):
    """One step of a story: what was done, and what it led to."""

    says: str
    outcome: str


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """The shortest way to something that must not be. `steps` can be walked again by `replay`."""

    world: str
    steps: tuple[Step, ...]
    problem: str

    def lines(self) -> list[str]:
        width = max((len(step.says) for step in self.steps), default=0)
        told = [f"{number:>3}. {step.says:<{width}}  {step.outcome}" for number, step in enumerate(self.steps, 1)]
        return [f"In the world {self.world}, after", *told, f"this does not hold: {self.problem}"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found. `edges` are all commands that were tried, `followed` those that left records."""

    world: str
    says: str
    places: int
    edges: int
    followed: int
    depth: int
    seconds: float  # of this process's own work, whatever else the machine does
    dead_ends: int
    waiting: int  # places in which only a person can go on
    rows: tuple[MachineRow, ...]
    refusals: tuple[str, ...]
    story: Story | None = None


class _Broken(Exception):
    """A rule does not hold behind the place of that number."""

    def __init__(self, place: int, move: Move | None, problem: str) -> None:
        super().__init__(problem)
        self.place = place
        self.move = move
        self.problem = problem


class Tried(NamedTuple):
    """One edge: the decision, the rows that its records took, and the place behind it if it is followed."""

    move: Move
    decided: Decided
    refold: Refold | None
    behind: Place | None


def tried(place: Place, move: Move) -> Tried | str:
    """Send one command; the sentence of the rule that it breaks, if it breaks one."""
    try:
        decided = ask(place, move.command)
        if not decided.facts:
            problem = rules.of_answer(place, move, decided)
            return problem or Tried(move, decided, None, None)
        refold = Refold(place).fold(decided.facts)
    except Exception as error:  # whatever it is: a decider and the fold answer everything that is asked
        return f"the core raises {type(error).__name__}: {error}"
    problem = rules.of_edge(place, move, decided, refold)
    if problem:
        return problem
    spends = move.spends
    if decided.refusal is not None and decided.refusal.code in ("rejected_stale", "rejected_conflict"):
        spends = "late"
    if spends and not place.left.get(spends):
        return Tried(move, decided, refold, None)
    return Tried(move, decided, refold, follow(place, decided, spends, move.boot))


class Search:
    """One search of one world."""

    def __init__(self, world: World, *, places_max: int = PLACES_MAX, compare_every: int = 0) -> None:
        self.world = world
        self.rows: set[MachineRow] = set()
        self.refusals: set[str] = set()
        self.edges = self.followed = self.depth = self.waiting = self.dead_ends = 0
        self.compared = 0
        self._places_max = places_max
        self._compare_every = compare_every
        self._numbers: dict[bytes, int] = {}
        self._parents = array("q")
        self._depths = array("i")
        self._says: list[str] = []
        self._final = bytearray()  # waits.MOVES_ON, AT_REST or ONLY_A_PERSON
        self._origins = array("q")  # edges of the system: from …
        self._targets = array("q")  # … to
        self._queue: deque[tuple[int, Place, Cast]] = deque()

    def run(self) -> Report:
        began = time.process_time()
        story = None
        try:
            self._explore()
            self._walk_back()
        except _Broken as broken:
            story = self._story(broken)
        return Report(
            world=self.world.name,
            says=self.world.says,
            places=len(self._numbers),
            edges=self.edges,
            followed=self.followed,
            depth=self.depth,
            seconds=time.process_time() - began,
            dead_ends=self.dead_ends,
            waiting=self.waiting,
            rows=tuple(sorted(self.rows)),
            refusals=tuple(sorted(self.refusals)),
            story=story,
        )

    def _explore(self) -> None:
        root = root_of(self.world)
        self._enter(root, -1, None)
        while self._queue:
            number, place, cast = self._queue.popleft()
            self._expand(number, place, cast)

    def _enter(self, place: Place, parent: int, move: Move | None) -> int:
        cast = Cast(place)
        key = key_of(place, cast)
        known = self._numbers.get(key)
        if known is not None:
            if self._compare_every and self.followed % self._compare_every == 0:
                self._compare(known, place, cast)
            return known
        problem = rules.of_place(place, cast) or waits.of_words(place, cast)
        number = len(self._numbers)
        if number >= self._places_max:
            problem = f"the world has more than {self._places_max} places"
        self._numbers[key] = number
        self._parents.append(parent)
        self._says.append("" if move is None else move.says)
        depth = 0 if parent < 0 else self._depths[parent] + 1
        self._depths.append(depth)
        self.depth = max(self.depth, depth)
        final = rest_of(place, cast)
        if problem:
            raise _Broken(number, None, problem)
        self._final.append(final)
        self.waiting += final == ONLY_A_PERSON
        self._queue.append((number, place, cast))
        return number

    def _expand(self, number: int, place: Place, cast: Cast) -> None:
        services = 0
        waits_for_person = self._final[number] == ONLY_A_PERSON
        for move in moves_of(place, cast):
            self.edges += 1
            edge = tried(place, move)
            if isinstance(edge, str):
                raise _Broken(number, move, edge)
            if edge.decided.refusal is not None:
                self.refusals.add(edge.decided.refusal.code)
            if edge.refold is not None:
                for _, row in edge.refold.moves:
                    self.rows.add(row)
                if waits_for_person and move.who in SYSTEM and not move.spends:
                    problem = waits.of_stir(place, edge.refold.moves)
                    if problem:
                        raise _Broken(number, move, problem)
            if edge.behind is None:
                continue
            self.followed += 1
            services += move.who == "service"
            behind = self._enter(edge.behind, number, move)
            if move.who in SYSTEM and behind != number:
                self._origins.append(number)
                self._targets.append(behind)
        if waits_for_person and not services:
            problem = waits.of_rest(place, cast)
            if problem:
                raise _Broken(number, None, problem)

    def _walk_back(self) -> None:
        """Mark every place from which the system alone comes to rest; the others are dead ends."""
        before: list[list[int]] = [[] for _ in self._final]
        for origin, target in zip(self._origins, self._targets, strict=True):
            before[target].append(origin)
        rests = bytearray(len(self._final))
        queue = deque(number for number, final in enumerate(self._final) if final)
        for number in queue:
            rests[number] = 1
        while queue:
            for origin in before[queue.popleft()]:
                if not rests[origin]:
                    rests[origin] = 1
                    queue.append(origin)
        stuck = [number for number, rest in enumerate(rests) if not rest]
        self.dead_ends = len(stuck)
        if stuck:
            raise _Broken(
                stuck[0], None, "the system alone never comes to rest from here, and no reason names a person"
            )

    def _path(self, number: int) -> list[str]:
        says: list[str] = []
        while self._parents[number] >= 0:
            says.append(self._says[number])
            number = self._parents[number]
        return says[::-1]

    def _story(self, broken: _Broken) -> Story:
        says = self._path(broken.place)
        if broken.move is not None:
            says.append(broken.move.says)
        place, steps = root_of(self.world), []
        for step, behind in _walk(self.world, says):
            steps.append(step)
            place = place if behind is None else behind
        names = Cast(place).names
        told = tuple(Step(step.says, _named(step.outcome, names)) for step in steps)
        return Story(world=self.world.name, steps=told, problem=_named(broken.problem, names))

    def _compare(self, number: int, place: Place, cast: Cast) -> None:
        """Expand a place that was folded into another: the same must be able to happen in both."""
        first = root_of(self.world)
        for _, behind in _walk(self.world, self._path(number)):
            if behind is not None:
                first = behind
        mine, other = _successors(place, cast), _successors(first, Cast(first))
        self.compared += 1
        if mine != other:
            differ = sorted(key.hex() for key in mine ^ other)
            raise _Broken(number, None, f"another place was folded into this one and leads elsewhere: {differ[:3]}")


def _successors(place: Place, cast: Cast) -> set[bytes]:
    found = set()
    for move in moves_of(place, cast):
        edge = tried(place, move)
        if isinstance(edge, Tried) and edge.behind is not None:
            found.add(key_of(edge.behind, Cast(edge.behind)))
    return found


def _walk(world: World, says: list[str]) -> Iterator[tuple[Step, Place | None]]:
    """Walk a path of sentences from the world's beginning. Raises LookupError where a sentence does not fit."""
    place = root_of(world)
    for sentence in says:
        cast = Cast(place)
        move = next((move for move in moves_of(place, cast) if move.says == sentence), None)
        if move is None:
            raise LookupError(f"nobody can do this here: {sentence}")
        edge = tried(place, move)
        if isinstance(edge, str):
            yield Step(sentence, f"!! {edge}"), None
            return
        yield Step(sentence, _told(edge, cast)), edge.behind
        place = place if edge.behind is None else edge.behind


def _named(text: str, names: Mapping[str, str]) -> str:
    """The text with the names that stories use in the place of identifiers."""
    for subject, name in names.items():
        if "_" in subject:
            text = text.replace(subject, name)
    return text


def _told(edge: Tried, cast: Cast) -> str:
    """What an edge led to, in a few words."""
    refusal = edge.decided.refusal
    words = [] if refusal is None else [f"refused: {refusal.code}"]
    names = cast.names if edge.behind is None else Cast(edge.behind).names
    for subject, row in () if edge.refold is None else edge.refold.moves:
        name = names.get(subject, subject)
        words.append(f"{name} is {row.target}" if row.machine != "clock_domain" else f"the clock is {row.target}")
    return "; ".join(words) or ("noted" if edge.decided.facts else "nothing changes")


def replay(story: Story) -> str:
    """Walk a story again; the problem that is found on its way or at its end, "" if all is well by now.

    Raises LookupError when the story cannot be walked any more, because something else happens on its way.
    """
    world = BY_NAME[story.world]
    place: Place | None = root_of(world)
    for step, behind in _walk(world, [step.says for step in story.steps]):
        if step.outcome.startswith("!! "):
            return step.outcome.removeprefix("!! ")
        place = place if behind is None else behind
        if place is not None:
            cast = Cast(place)
            problem = rules.of_place(place, cast) or waits.of_words(place, cast)
            if problem:
                return problem
    return "" if place is None else _stuck(place)


def _stuck(first: Place, places_max: int = 200_000) -> str:
    """Whether the system alone comes to rest from a place, looked for forwards."""
    seen: set[bytes] = set()
    queue = deque([first])
    while queue and len(seen) < places_max:
        place = queue.popleft()
        cast = Cast(place)
        key = key_of(place, cast)
        if key in seen:
            continue
        seen.add(key)
        if rest_of(place, cast):
            return ""
        for move in moves_of(place, cast):
            if move.who not in SYSTEM:
                continue
            edge = tried(place, move)
            if isinstance(edge, str):
                return edge
            if edge.behind is not None:
                queue.append(edge.behind)
    return "the system alone never comes to rest from here, and no reason names a person"


def search(world: World, *, compare_every: int = 0, places_max: int = PLACES_MAX) -> Report:
    """Search one world. `compare_every` checks the folding at every so many edges that lead to known places."""
    return Search(world, compare_every=compare_every, places_max=places_max).run()
