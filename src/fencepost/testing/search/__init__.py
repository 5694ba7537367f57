"""Exhaustive search: every place that a small world can come to, over the real `decide` and `evolve`.

`python -m fencepost.testing.search` searches the small worlds of `worlds.py` and prints a table. Whoever adds a
command, a state or a rule extends what is here in this order:

- `worlds`: a world in which it can happen, and an act of `World.may` if a person or a fault does it;
- `moves` (`inside` for what programs say): the command, well-formed and as somebody out of date would send it;
- `expected`: when it ought to be accepted, in the words of the lifecycle page and not in those of its decider;
- `rules` (`rules_inside`): what it must lead to, and what must hold in the places behind it;
- `folding`: whatever it makes matter; `--compare 1` says when something that matters was left out;
- `waits`: who moves an order on that rests in a new state, for the judgement of dead ends;
- `rows`: the rows of the machines that it opens leave the table of those that nothing reaches;
- `template`, `shapes` and `closure`: whatever it makes deciders look at is put into the combinations.

`proofs` shows that nothing takes the rows of that table: `writers` reads the sources for states that nobody writes,
`closure` sends every command to an order of every shape, and both say what to do when they do not hold any more.
`place` runs the core, `explore` walks the graph, finds dead ends, and makes stories of what does not hold.
"""
