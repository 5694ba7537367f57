"""The whole system on one thread and one seed, with everything going wrong (X6).

For authors of stores, executors and services as for the project itself: `World(draw(seed)).run()` runs the real
kernel, scheduler, services and workers of many processes on several hosts, with simulated clocks, entropy, storage,
hints, locks and executions, and looks at everything after every step. `python -m fencepost.testing.simulator --help`
says how seeds are run on all cores, and how a failing one is made small and told as a story.

What a run is made of is data (`scenario.Scenario`). What goes wrong has a name and a rate (`faults.Rates`). What must
hold is in `checks`, and in `auditor`, which predicts every answer of the kernel and shares no code with it.

Authors bring a store or an executor of their own (`authors.Parts`, `programs.Site`); `suite.InSimulation` runs the
suites of `fencepost.testing.conformance` inside. docs/TESTING.md is their guide.
"""
