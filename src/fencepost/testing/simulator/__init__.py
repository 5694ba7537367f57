"""The whole system on one thread and one seed, with everything going wrong (X6).

For authors of stores, executors and services as for the project itself: `World(draw(seed)).run()` runs the real
kernel, scheduler, services and workers of many processes on several hosts, with simulated clocks, entropy, storage,
hints, locks and executions, and looks at everything after every step. `python -m fencepost.testing.simulator --help`
says how seeds are run on all cores, and how a failing one is made small and told as a story.

What a run is made of is data (`scenario.Scenario`). What goes wrong has a name and a rate (`faults.Rates`). What must
hold is in `checks`, and in `auditor`, which predicts every answer of the kernel and shares no code with it.

An author of a store hands it in: `World(draw(seed), engine=store).run()` gives the same records, to the last byte, as
the engine in memory, whatever goes wrong in between. An author of an executor finds in `executor.SimExecutor` what
the services rely on, and in `fencepost.testing.conformance` the suite that a real one must pass.
"""
