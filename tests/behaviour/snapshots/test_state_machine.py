"""Any order of changes, crashes and rollbacks leaves the state that a model predicts."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

NAMES = st.sampled_from("abc")
VALUES = st.integers(0, 9)


class Namespace(RuleBasedStateMachine):
    """Lists of numbers by name, and their values after each step."""

    @initialize()
    def start(self) -> None:
        self.runtime = PythonRuntime(sandbox=SandboxPolicy(preload=()))
        self.live: dict[str, list[int]] = {}
        self.after = {0: self.live}
        self.fresh = False

    def run(self, code: str) -> None:
        result = self.runtime.execute(code)
        assert result.success, result.error
        self.after[result.step] = {name: list(values) for name, values in self.live.items()}

    @rule(name=NAMES, value=VALUES)
    def assign(self, name: str, value: int) -> None:
        self.live = {**self.live, name: [value]}
        self.run(f"{name} = [{value}]")

    @precondition(lambda self: self.live)
    @rule(value=VALUES)
    def mutate(self, value: int) -> None:
        name = min(self.live)
        self.live = {**self.live, name: [*self.live[name], value]}
        self.run(f"{name}.append({value})")

    @rule(name=NAMES, deed=st.sampled_from(["os.abort()", "os._exit(0)", "os.kill(os.getpid(), 9)"]))
    def crash(self, name: str, deed: str) -> None:
        result = self.runtime.execute(f"import os; {name} = 'changed'; globals().clear(); import os; {deed}")
        assert "rolled_back" == result.state

    @rule(choice=st.integers(0, 100))
    def rollback(self, choice: int) -> None:
        self.runtime.snapshot()
        kept = [info.step for info in self.runtime.snapshots()]
        step = kept[choice % len(kept)]
        assert step == self.runtime.rollback(step).step
        self.live = {name: list(values) for name, values in self.after[step].items()}

    @invariant()
    def equal(self) -> None:
        if not hasattr(self, "runtime"):
            return
        code = "{n: v for n in 'abc' if (v := globals().get(n)) is not None}"
        result = self.runtime.execute(code)
        assert result.success, result.error
        assert repr(dict(sorted(self.live.items()))) == result.value
        self.after[result.step] = {name: list(values) for name, values in self.live.items()}

    def teardown(self) -> None:
        if hasattr(self, "runtime"):
            self.runtime.close()


Namespace.TestCase.settings = settings(max_examples=8, stateful_step_count=12, deadline=None)
TestNamespace = Namespace.TestCase
