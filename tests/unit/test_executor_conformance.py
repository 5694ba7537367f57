"""The command executor passes the shipped suite of its port."""

from __future__ import annotations

from fencepost.adapters.executors.command import CommandExecutor
from fencepost.ports.executor import Executor
from fencepost.testing.conformance.executor import ExecutorConformance


class TestCommandExecutor(ExecutorConformance):
    def make_executor(self) -> Executor:
        return CommandExecutor()
