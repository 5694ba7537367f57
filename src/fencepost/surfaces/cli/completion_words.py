"""What a word on the command line may become: commands, options, and what their values are, the store's names included.

`candidates` gives (word, what it is) in a stable order. Two words stand for what a shell does better itself: `:files`
and `:folders`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from fencepost.app import reading
from fencepost.core.limits import FIRST_VALUES
from fencepost.core.machines import WORK_ORDER
from fencepost.kernel.read import Look
from fencepost.ports.errors import FencepostError
from fencepost.surfaces.cli.accounts import title_of
from fencepost.surfaces.cli.command_tree import Command, Parameter, first_sentence, read_noun
from fencepost.surfaces.cli.context import Globals, find_plan, home_of, plan_title
from fencepost.surfaces.cli.frame import NOUNS, VALUED

Candidate = tuple[str, str]

PLANS_MAX: Final = 200
ORDERS_MAX: Final = FIRST_VALUES.plan_orders_max
ABOUT_CHARACTERS_MAX: Final = 100
FILES: Final = (":files", "")
FOLDERS: Final = (":folders", "")
PLANS_LOOKED_AT_MAX: Final = 20  # for orders that ask
_ORDER_NOUNS: Final = ("order", "attempt")


def candidates(typed: Sequence[str]) -> list[Candidate]:
    """Candidates for the last of the words after `fencepost`. May raise whatever reading a store raises."""
    *before, current = typed or [""]
    given, words, pending = _split(before)
    if pending:
        return _begin(current, _value_of(pending, None, given, words, current))
    noun = words[0] if words else ""
    if not noun:
        return _begin(current, _first_words(current))
    if noun == "help":
        return _begin(current, _help_words(words[1:]))
    if noun not in NOUNS:
        return []
    found = read_noun(noun)
    if found.has_verbs and len(words) == 1:
        if current.startswith("-"):
            return _begin(current, [("--help", ""), *((option, "") for option in (*VALUED, "--json"))])
        return _begin(current, [(one.words[1], first_sentence(one.summary)) for one in found.commands])
    command = next((one for one in found.commands if not found.has_verbs or one.words[1] == words[1]), None)
    if command is None:
        return []
    return _begin(current, _of_command(command, before, words[len(command.words) :], given, current))


def _begin(current: str, found: Sequence[Candidate]) -> list[Candidate]:
    """Those that begin as the word does, each once, on one line."""
    kept = {
        word: first_sentence(" ".join(about.split()))[:ABOUT_CHARACTERS_MAX]
        for word, about in found
        if word.startswith((current, ":"))
    }
    return list(kept.items())


def _split(before: Sequence[str]) -> tuple[dict[str, str], list[str], str]:
    """Global options with their values, the words that are none, and an option that still waits for its value."""
    given: dict[str, str] = {}
    words: list[str] = []
    rest = list(before)
    while rest:
        token = rest.pop(0)
        name, equals, value = token.partition("=")
        if name in VALUED:
            if not equals and not rest:
                return given, words, name
            given[name] = value if equals else rest.pop(0)
        elif not token.startswith("-"):
            words.append(token)
    return given, words, ""


def _first_words(current: str) -> list[Candidate]:
    if current.startswith("-"):
        return [("--help", ""), ("--version", ""), *((option, "") for option in (*VALUED, "--json"))]
    return [*NOUNS.items(), ("help", "what there is to say of a command, a topic or a code")]


def _help_words(words: Sequence[str]) -> list[Candidate]:
    from fencepost.surfaces.cli.help import TOPICS

    if not words:
        return [*NOUNS.items(), *((name, about) for name, (about, _) in TOPICS.items())]
    noun = read_noun(words[0]) if words[0] in NOUNS and len(words) == 1 else None
    return [(one.words[1], one.summary) for one in noun.commands] if noun is not None and noun.has_verbs else []


def _of_command(
    command: Command, before: Sequence[str], words: Sequence[str], given: Mapping[str, str], current: str
) -> list[Candidate]:
    options = {one.name: one for one in (*command.options, *command.shared)}
    last = before[-1] if before else ""
    if last in options and options[last].value:
        return _value_of(last, command, given, words, current)
    name, equals, value = current.partition("=")
    if equals and name in options and options[name].value:
        found = _value_of(name, command, given, words, value)
        return [(f"{name}={word}", about) for word, about in found if not word.startswith(":")]
    if current.startswith("-"):
        used = {token.partition("=")[0] for token in before}
        return [
            ("--help", "this command, with examples"),
            *((one.name, one.about) for one in options.values() if one.repeated or one.name not in used),
        ]
    place = len(_arguments(words, before, options))
    if not command.arguments:
        return []
    return _argument(command, command.arguments[min(place, len(command.arguments) - 1)], given, current)


def _arguments(words: Sequence[str], before: Sequence[str], options: Mapping[str, Parameter]) -> list[str]:
    """Those of the words that are arguments, and not the value of an option before them."""
    values = [
        after
        for token, after in pairwise(before)
        if token in options and options[token].value and not after.startswith("-")
    ]
    kept = list(words)
    for value in values:
        if value in kept:
            kept.remove(value)
    return kept


def _argument(command: Command, argument: Parameter, given: Mapping[str, str], current: str) -> list[Candidate]:
    if argument.choices:
        return [(choice, "") for choice in argument.choices]
    if argument.name in ("FILE",) or command.name in ("run", "doctor", "plan check", "plan submit", "plan diff"):
        return [FILES]
    if command.name == "order answer" and argument.name == "NAME":
        return _from_store(given, _asking) or _from_store(given, _orders_like(current))
    if argument.name == "NAME" and command.words[0] in _ORDER_NOUNS:
        return _from_store(given, _orders_like(current))
    if argument.name == "NAME" and command.words[0] == "plan":
        return _from_store(given, _plans)
    if argument.name == "ACCOUNT":
        return [("scope", "the account of the whole scope"), *_from_store(given, _plans_and_orders_like(current))]
    return []


def _value_of(
    option: str, command: Command | None, given: Mapping[str, str], words: Sequence[str], current: str
) -> list[Candidate]:
    if option in ("--home", "--to", "--repo"):
        return [FOLDERS]
    if option == "--svg":
        return [FILES]
    if option == "--plan":
        return _from_store(given, _plans)
    if option == "--state":
        return [(state, "") for state in WORK_ORDER.states]
    known = (*command.options, *command.shared) if command is not None else ()
    chosen = next((one for one in known if one.name == option), None)
    return [(choice, "") for choice in chosen.choices] if chosen is not None else []


def _from_store(given: Mapping[str, str], read: Callable[[Look], Iterator[Candidate]]) -> list[Candidate]:
    """What `read` finds in the store that the typed global options mean."""
    options = Globals(store=given.get("--store"), home=given.get("--home"), scope=given.get("--scope"))
    try:
        config = options.config()
        home = home_of(config, Path.cwd())
        if home is None:
            return []
        with reading(home, config.scope) as reader, reader.look() as look:
            return list(read(look))
    except (FencepostError, OSError):
        return []  # there is no store to name anything from; what does not come from it is still offered


def _plans(look: Look) -> Iterator[Candidate]:
    for plan in look.newest_plans(PLANS_MAX):
        # Two that are open under one name are told apart by their ids alone.
        yield plan_title(look, plan) if plan.open else plan.name, f"plan, {plan.open} of {plan.orders} orders open"


def _asking(look: Look) -> Iterator[Candidate]:
    """Orders that wait for an answer, with the plan's name where another plan may be meant."""
    newest = look.newest_plans(PLANS_MAX)
    plans = [plan for plan in newest if plan.open][:PLANS_LOOKED_AT_MAX]
    # An answer takes no bare name that another open plan, or the one submitted last, has as well.
    others = [*plans[1:], *(plan for plan in newest[:1] if not plan.open)]
    elsewhere = {order.task for plan in others for order in look.orders(plan.plan)[:ORDERS_MAX]}
    for number, plan in enumerate(plans):
        for order in look.orders(plan.plan)[:ORDERS_MAX]:
            if order.state == "waiting" and order.wait is not None and order.wait.question:
                is_bare = number == 0 and order.task not in elsewhere
                yield order.task if is_bare else title_of(look, order), f"asks {order.wait.question}"


def _orders_like(current: str) -> Callable[[Look], Iterator[Candidate]]:
    """Orders of the plan that the word begins with; without one, those of the current plan, and plans to go on with."""
    plan_name, slash, _ = current.rpartition("/")

    def read(look: Look) -> Iterator[Candidate]:
        plans = look.newest_plans(PLANS_MAX)
        if slash:
            chosen = find_plan(look, plan_name)
            yield from _orders(look, chosen.plan, f"{plan_name}/")
            return
        newest = next((plan for plan in plans if plan.open), plans[0] if plans else None)
        if newest is not None:
            yield from _orders(look, newest.plan, "")
        for name in dict.fromkeys(plan.name for plan in plans):
            yield f"{name}/", "an order of this plan"

    return read


def _orders(look: Look, plan: str, lead: str) -> Iterator[Candidate]:
    for order in look.orders(plan)[:ORDERS_MAX]:
        yield f"{lead}{order.task}", order.state


def _plans_and_orders_like(current: str) -> Callable[[Look], Iterator[Candidate]]:
    def read(look: Look) -> Iterator[Candidate]:
        yield from _plans(look)
        yield from _orders_like(current)(look)

    return read
