"""A large plan on its way from a file into the store, as `fencepost plan submit` takes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fencepost.kernel.kernel import Kernel
from fencepost.surfaces.cli.plan_files import check, read_source
from fencepost.surfaces.cli.submit import place
from tests.bench import pair

LAYER = 100


def plan_text(orders: int) -> str:
    """Orders in layers of a hundred, each waiting for its neighbour in the layer before."""
    parts = [f'name = "many"\nobjective = "as many orders as a plan may have"\n[budget]\nattempts = {orders}\n']
    for number in range(orders):
        needs = f'needs = ["task-{number - LAYER}"]\n' if number >= LAYER else ""
        parts.append(f'[[work]]\nname = "task-{number}"\nrun = ["true"]\ninputs = ["many.toml"]\n{needs}')
    return "".join(parts)


def plan_s(folder: Path, orders: int, counted: Callable[[Kernel, int], Any]) -> dict[str, float]:
    """Seconds for reading and checking the file against its tree, and for pinning and submitting what it says."""
    home = pair.made(folder)
    file = folder / "many.toml"
    file.write_text(plan_text(orders), encoding="utf-8")
    app = pair.opened(home)
    try:
        begun = time.perf_counter()
        checked = check(read_source(str(file), str(folder)))
        between = time.perf_counter()
        placed = place(app, checked, "continue", None)
        ended = time.perf_counter()
        with app.kernel.reader.look() as look:
            if len(look.orders(placed.plan)) != orders:
                raise RuntimeError("orders of the plan are missing")
        counted(app.kernel, 0)
    finally:
        app.close()
    return {"checked_s": between - begun, "submitted_s": ended - between}


def order_list_ms(
    folder: Path, starts: int, cli_ms: Callable[[int, Sequence[str], Path], float | None]
) -> float | None:
    """`fencepost order list` of a plan of a hundred orders."""
    app = pair.opened(pair.made(folder))
    try:
        file = folder / "many.toml"
        file.write_text(plan_text(LAYER), encoding="utf-8")
        place(app, check(read_source(str(file), str(folder))), "continue", None)
    finally:
        app.close()
    return cli_ms(starts, ("order", "list"), folder)
