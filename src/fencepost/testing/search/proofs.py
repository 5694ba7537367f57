"""Why the rows that no world reaches cannot be reached: each is proved by the argument that its reason names.

*unwritten*: nothing in the core writes the row's target, or nothing writes its origin. It holds for every history there
can be, and fails as soon as any decider or fold writes that state (`writers`).

*closed*: both states are written, and no command takes the row from an order of any shape, in any combination of what
else deciders look at (`closure`). It holds as far as those combinations are all that deciders can tell apart: what the
worlds reach must be reached there too, and no field or command may be left out of it.

What a command cannot say is checked beside them (`FORMS`): effects and ways to recover that the tables foresee, and
that no executor and no decider knows yet.

`problems` is empty as long as all of it holds. Each problem says what has changed and what is to be done about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from fencepost.core import commands as c
from fencepost.testing.search import writers
from fencepost.testing.search.closure import Closure, gaps, uncovered
from fencepost.testing.search.place import MachineRow
from fencepost.testing.search.rows import ALL, ARGUMENT, CLOSED, UNREACHABLE, UNWRITTEN
from fencepost.testing.search.shapes import Cell
from fencepost.testing.search.writers import CannotTell, Written

_LEARN = "give it a world that reaches it (worlds.py, moves.py, expected.py, rules.py) and take its row out of rows.py"

FORMS: tuple[tuple[type[msgspec.Struct], str, frozenset[str]], ...] = (
    (c.OrderDraft, "effects", frozenset({"none", "declared"})),
    (c.SubmitPlan, "recovery", frozenset({"replace"})),
)
"""What a command can say, where the records could say more. An order that is submitted alone recovers as the kernel
writes it, which is looked up in the source."""


class Proved(NamedTuple):
    """One row that nothing takes, and why."""

    row: MachineRow
    argument: str  # rows.UNWRITTEN or rows.CLOSED
    because: str


class Proofs(NamedTuple):
    """Every row that is listed as unreachable with its proof, and what does not hold of them."""

    proved: Mapping[MachineRow, Proved]
    problems: tuple[str, ...]


def prove(closure: Closure, reached: Iterable[MachineRow], core: Path | None = None) -> Proofs:
    """Prove every row of `rows.UNREACHABLE`. `reached` is what searches of the worlds have taken.

    `core` is the folder whose sources are read, None for those of this process.
    """
    reached = frozenset(reached)
    problems = [*gaps(closure), *_narrow(closure, reached), *_forms(core)]
    try:
        written = writers.written(core)
    except CannotTell as lost:
        return Proofs({}, (*problems, f"writers: {lost}; no row is proved to be unwritten until that is settled"))
    problems += _blind(written, reached)
    proved: dict[MachineRow, Proved] = {}
    for row, reason in sorted(UNREACHABLE.items()):
        argument = ARGUMENT.get(reason)
        found: Proved | str = f"its reason has no argument in rows.ARGUMENT, so that nothing proves it; {_LEARN}"
        if argument is not None:
            found = _unwritten(row, written) if argument == UNWRITTEN else _closed(row, closure)
        if isinstance(found, Proved):
            proved[row] = found
        else:
            problems.append(f"{row.machine} {row.origin or 'birth'} -> {row.target}: {found}")
    new = sorted(closure.rows.keys() - reached - UNREACHABLE.keys())
    for row in new if reached >= ALL - UNREACHABLE.keys() else ():
        name = f"{row.machine} {row.origin or 'birth'} -> {row.target}"
        problems.append(f"{name}: {_witness(row, closure)}, and no world does; {_LEARN}")
    return Proofs(proved, tuple(problems))


def _unwritten(row: MachineRow, written: Written) -> Proved | str:
    machine, origin, target = row
    if target not in written.moves[machine]:
        return Proved(row, UNWRITTEN, f"nothing in the core moves a {machine} to {target}")
    if not written.at(machine, origin):
        return Proved(row, UNWRITTEN, f"nothing in the core makes a {machine} {origin}")
    return (
        f"rows.py says that nothing in the core writes one of its states, and core/{written.at(machine, origin)} "
        f"writes {origin}, core/{written.moves[machine][target]} writes {target}; {_LEARN}, "
        f"or give it a reason whose argument is {CLOSED!r}"
    )


def _closed(row: MachineRow, closure: Closure) -> Proved | str:
    if row in closure.rows:
        return f"rows.py says that nothing takes it, and {_witness(row, closure)}; {_LEARN}"
    shapes = sum(shape.order == row.origin for shape in closure.shapes)
    return Proved(row, CLOSED, f"no command takes it from any of {len(closure.shapes)} shapes, {shapes} in its origin")


def _witness(row: MachineRow, closure: Closure) -> str:
    taken = closure.rows[row]
    shape = " / ".join(part for part in taken.shape if part)
    others = [f"{name} {value}" for name, value in taken.cell._asdict().items() if value != Cell._field_defaults[name]]
    return f"“{taken.says}” takes it from {shape} ({'; '.join(others) or 'nothing out of the ordinary'})"


def _narrow(closure: Closure, reached: Iterable[MachineRow]) -> list[str]:
    return [
        f"closure: a world takes {row.machine} {row.origin or 'birth'} -> {row.target} and no combination of shapes.py "
        f"does: they are too narrow, and the closure proves nothing until they are widened"
        for row in uncovered(closure, reached)
    ]


def _blind(written: Written, reached: Iterable[MachineRow]) -> list[str]:
    """Rows that worlds take although no writer of their target is seen: the analysis would miss others as well."""
    return [
        f"writers: a world takes {row.machine} {row.origin or 'birth'} -> {row.target}, and nothing is seen that "
        f"writes {row.target}: teach the analysis that door"
        for row in sorted(reached)
        if row.target not in (written.moves if row.origin else written.births)[row.machine]
    ]


def _forms(core: Path | None) -> list[str]:
    """What no command can ask for, and what the fold takes for granted because of it."""
    found = []
    for kind, field, allowed in FORMS:
        said = _choices(kind, field)
        if said != allowed:
            found.append(
                f"commands: {kind.__name__}.{field} can be {', '.join(sorted(said))}; the reasons of rows.py rest on "
                f"{', '.join(sorted(allowed))}"
            )
    for place in writers.effect_writers(core):
        found.append(
            f"core/{place} sets an effect flag of an order: vary effect_open and effect_applied in shapes.py, take "
            f"them out of closure.FIXED"
        )
    said = writers.recorded("WorkOrderSpec", "recovery", core)
    if said != {"replace"}:
        found.append(f"core: orders are written to recover by {', '.join(sorted(said))}; rows.py rests on replace")
    return found


def _choices(kind: type[msgspec.Struct], field: str) -> frozenset[str]:
    hints = msgspec.inspect.type_info(kind)
    fields = hints.fields if isinstance(hints, msgspec.inspect.StructType) else ()
    info = next(each.type for each in fields if each.name == field)
    if isinstance(info, msgspec.inspect.LiteralType):
        return frozenset(map(str, info.values))
    return frozenset({"anything"})
