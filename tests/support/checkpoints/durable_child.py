"""A process that forks clients of a durable runtime, one per line of its input, to be killed at any moment.

Each restores the runtime, or begins it, prints the state that it found and then a line for every acknowledged cell.
With a second argument the runtime sleeps after each of its cells.
"""

from __future__ import annotations

import sys

from tests.support.checkpoints.lives import live, say

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.store import CheckpointStore

SANDBOX = SandboxPolicy(preload=())
BEGIN = "x, log, alias = 0, [], None\nalias = log\nlives, turns = (), (turn for turn in range(10**6))"
CELL = "x += 1; log.append(x)\nwith open('file', 'a') as f: print(x, file=f)"
TURN = "lives = (*lives, next(turns)); lives == tuple(range(len(lives)))"
FOUND = "x, len(alias), log is alias, len(open('file').readlines()) if x else 0"


def client(store: str, *, sleeping: bool) -> None:
    """Runs until it is killed."""
    if CheckpointStore(store).checkpoints("r"):
        runtime = PythonRuntime.restore(store, "r", durable=True, sandbox=SANDBOX)
        assert runtime.execute(TURN).value == "True"  # a generator, which no checkpoint contains
        say("found", runtime.execute(FOUND).value)
    else:
        runtime = PythonRuntime(store=store, name="r", durable=True, sandbox=SANDBOX)
        say("began", runtime.execute(BEGIN).success)
    while True:
        result = runtime.execute(f"{CELL}\nx")
        say("did", result.value)
        if sleeping:
            runtime.hibernate()


if __name__ == "__main__":
    live(lambda _line: client(sys.argv[1], sleeping=len(sys.argv) > 2))
