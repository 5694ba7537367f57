"""What is said of each command beside its own text: examples, which a test reads, and the exit codes to expect.

An exit code that every command may give (1, 2, and 3 without a home) is not repeated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Example(NamedTuple):
    line: str
    about: str


class Page(NamedTuple):
    """`exits` are those with a meaning of their own here; all of them are in `fencepost help exit-codes`."""

    examples: tuple[Example, ...]
    exits: tuple[int, ...] = (0, 3)
    more: str = ""


def _page(*examples: tuple[str, str], exits: tuple[int, ...] = (0, 3), more: str = "") -> Page:
    return Page(tuple(Example(line, about) for line, about in examples), exits, more)


_INSIDE: Final = (0, 1, 2, 5)
_BINDING: Final = (0, 3, 4, 5, 8)
"""Of what records: also where the store is a copy (5) or older than what was signed of it (8)."""

PAGES: Final[Mapping[str, Page]] = {
    "init": _page(
        ("fencepost init", "at the git root, else in this folder"),
        ("fencepost init --scope team", "opens one more scope in the same store"),
        exits=(0, 4, 5),
        more="`run` and `plan submit` do so by themselves; one more scope of a store is opened by this command alone.",
    ),
    "run": _page(
        ("fencepost run plan.toml", "submits the plan, or goes on with it"),
        ("fencepost run plan.toml --jobs 4 --timeout 30m", "at most four attempts at once, for half an hour"),
        ("fencepost run plan.toml --again", "once more, with the files as they are now"),
        exits=(0, 4, 5, 6, 7, 8, 9),
        more="Killed at any moment and run again, it continues. Ctrl-C drains what runs and never cancels the plan.",
    ),
    "plan check": _page(("fencepost plan check plan.toml", "every problem at once, with its place"), exits=(0, 2)),
    "plan submit": _page(
        ("fencepost plan submit plan.toml", "for a worker that runs elsewhere"),
        ("fencepost plan submit plan.toml --new", "beside an open plan of that name"),
        exits=(0, 2, 4, 5, 8),
    ),
    "plan show": _page(
        ("fencepost plan show", "the newest open plan"), ("fencepost plan show nightly --json", "as one document")
    ),
    "plan list": _page(("fencepost plan list --limit 10", "the ten newest")),
    "plan cancel": _page(
        ("fencepost plan cancel nightly --note 'wrong branch'", "stops what runs, cancels what waits"),
        exits=_BINDING,
    ),
    "plan diff": _page(("fencepost plan diff plan.toml", "the file against the plan of its name"), exits=(0, 3, 5)),
    "order list": _page(
        ("fencepost order list", "those of the newest open plan"),
        ("fencepost order list --plan nightly --state ready", "those of one plan in one state"),
    ),
    "order show": _page(("fencepost order show nightly/tests", "an order by plan and name")),
    "order why": _page(("fencepost order why tests", "what it waits for or why it ended, and what would help")),
    "order watch": _page(
        ("fencepost order watch tests", "until it has ended"),
        ("fencepost order watch --plan nightly --json", "a line of JSON at each change"),
        exits=(0, 3, 7),
    ),
    "order log": _page(
        ("fencepost order log tests --follow", "goes on while it runs"),
        ("fencepost order log tests --attempt 1 --stderr", "what the first attempt complained of"),
    ),
    "order files": _page(
        ("fencepost order files tests", "the files of the applied result"),
        ("fencepost order files tests --to result", "verified copies of them"),
        ("fencepost order files tests --attempt 1 --kept", "evidence that its program kept while it ran"),
        exits=(0, 3, 5),
    ),
    "order graph": _page(
        ("fencepost order graph", "steps, states and needs as text"),
        ("fencepost order graph --plan nightly --svg graph.svg", "as a drawing"),
    ),
    "order answer": _page(
        ("fencepost order answer tests yes", "the text yes"),
        ("fencepost order answer tests no --anyway", "also where the order ends with it, for want of budget"),
        ("fencepost order answer nightly/tests 3 --command-key release-7", "repeated, it is one answer"),
        exits=(0, 2, 3, 4, 5, 8),
    ),
    "order cancel": _page(("fencepost order cancel nightly/tests", "in any state that is not an end"), exits=_BINDING),
    "order retry": _page(
        ("fencepost order retry tests", "makes a backoff due, or submits a replacement"),
        ("fencepost order retry tests --with-dependents", "with what ended because of it"),
        ("fencepost order retry tests --from-start", "without what earlier attempts saved"),
        exits=_BINDING,
    ),
    "attempt list": _page(("fencepost attempt list tests", "what was tried, the first one first")),
    "attempt show": _page(("fencepost attempt show tests --attempt 1", "the whole evidence of one attempt")),
    "attempt heartbeat": _page(
        ("fencepost attempt heartbeat --note 'page 12 of 40'", "in a program that an order runs"), exits=_INSIDE
    ),
    "attempt checkpoint": _page(
        ("fencepost attempt checkpoint state.json", "what an attempt after a crash begins with"),
        ("fencepost attempt checkpoint state.json --builds-on 3", "refused unless it is the fourth one"),
        exits=(0, 1, 2, 5),
    ),
    "attempt resume": _page(
        ("fencepost attempt resume --optional --to state.json", "without a checkpoint there is no file: begin"),
        ("fencepost attempt resume --to state.json", "exit code 3: there is none"),
        exits=(0, 1, 2, 3, 5),
    ),
    "attempt charge": _page(
        ("fencepost attempt charge --receipt r_123 --calls 1 --money USD:0.004", "twice is once"),
        exits=_INSIDE,
        more="It is booked as it is, past a ceiling too, and under a lease that is over.",
    ),
    "attempt artifact": _page(("fencepost attempt artifact trace.log", "at once, and not as an output"), exits=_INSIDE),
    "attempt yield": _page(
        ("fencepost attempt yield --question colour --prompt 'Which one?'", "a person answers: order answer"),
        ("fencepost attempt yield --child draft --child check --after 1h", "both children, or an hour"),
        ("fencepost attempt yield --child draft --after 1h --unless-over", "exit code 3: it is over, so go on"),
        exits=(0, 1, 2, 3, 5),
        more="Waiting holds no slot, no lease and no budget. With a checkpoint of its own the attempt costs none.",
    ),
    "attempt answer": _page(
        ("fencepost attempt answer colour --value", "exit code 3: nobody has answered yet"), exits=(0, 1, 2, 3, 5)
    ),
    "attempt child": _page(
        ("fencepost attempt child draft.toml", "name, run, inputs, outputs, budget, accept, as in a plan"),
        exits=_INSIDE,
        more="The same one again is found. Its files are its parent's inputs, or what its `inputs` select here.",
    ),
    "attempt output": _page(
        ("fencepost attempt output draft text.md --to text.md", "once the child is applied"), exits=(0, 1, 2, 3, 5)
    ),
    "attempt status": _page(("fencepost attempt status", "`stopping` says why to end, and is empty for no reason")),
    "attempt hello": _page(("fencepost attempt hello", "checkpoints, answers and children of the order")),
    "budget show": _page(
        ("fencepost budget show", "the current plan's account and those above it"),
        ("fencepost budget show nightly/tests", "an order's"),
    ),
    "budget set": _page(
        ("fencepost budget set nightly --attempts 40 --time 2h", "raises two ceilings of a plan"),
        ("fencepost budget set scope --money USD:25", "what the whole scope may cost"),
        exits=(0, 2, 3, 4, 5, 8),
    ),
    "clock show": _page(("fencepost clock show", "recorded time, its sources, how far it is behind UTC")),
    "journal verify": _page(
        ("fencepost journal verify", "every record, and the anchors outside the store"),
        exits=(0, 3, 8),
        more="The line SEQ:DIGEST that it prints can be kept anywhere, and be given to --anchor later.",
    ),
    "journal replay": _page(
        ("fencepost journal replay", "from nothing, compared with every cached row"),
        ("fencepost journal replay --rebuild", "writes the caches anew"),
        exits=(0, 3, 8),
    ),
    "journal tail": _page(
        ("fencepost journal tail --limit 20", "the last records"),
        ("fencepost journal tail --follow --json", "exact bytes, as they are written"),
    ),
    "journal export": _page(
        ("fencepost journal export journal.ndjson", "the whole record in one file"), exits=(0, 3, 8)
    ),
    "worker start": _page(
        ("fencepost worker start", "until a signal comes"),
        ("fencepost worker start --until-idle --jobs 2", "until nothing is left that it can move"),
        exits=_BINDING,
    ),
    "doctor": _page(
        ("fencepost doctor", "host, source tree and home"),
        ("fencepost doctor plan.toml", "also the plan, and whether what it calls is here"),
        ("fencepost doctor --json", "with a stable code for each fault"),
        exits=(0, 1),
        more="Changes nothing. What is `warn` works, but less well or less safely; what is `bad` does not work, and "
        "makes the exit code 1. `fencepost help CODE` says more of one fault, docs/DOCTOR.md lists all.",
    ),
    "config view": _page(
        ("fencepost config view", "every value, where it comes from, and what it overrides"),
        exits=(0, 2),
        more="`fencepost help configuration` lists the settings.",
    ),
    "config validate": _page(
        ("fencepost config validate", "every source that counts here"),
        ("fencepost config validate fencepost.toml", "one file"),
        exits=(0, 2, 3),
    ),
    "completion": _page(
        ('eval "$(fencepost completion bash)"', "in ~/.bashrc"),
        ('eval "$(fencepost completion zsh)"', "in ~/.zshrc, after compinit"),
        ("fencepost completion fish | source", "in ~/.config/fish/config.fish"),
        exits=(0, 2),
        more="Words are completed from the commands and from the store: plans, orders, states, files. It only reads, "
        "gives up after three seconds, and says nothing where something is wrong.",
    ),
    "version": _page(
        ("fencepost version", "one line"), ("fencepost version --json", "with journal format and Python"), exits=(0,)
    ),
}
"""Words of a command -> what is said of it."""
