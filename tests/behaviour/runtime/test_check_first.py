"""`SandboxPolicy(check_first=True)`: a cell that is certain to fail sends and writes nothing."""

import pytest

from cenote.runtime import Function, Variable
from cenote_security.policy import SandboxPolicy

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform")]

NOTHING_RAN = "nothing of this cell has run"


class Outbox:
    """Stays in the client."""

    def __init__(self):
        self.sent = []

    def send(self, text, *, to="all"):
        self.sent.append((text, to))

    async def post(self, text):
        self.sent.append((text, "later"))


def test_a_refused_cell_calls_nothing_and_is_on_record(make_runtime):
    outbox = Outbox()
    functions = [Function(outbox.send, name="send", host=True), Function(outbox.post, name="post", host=True)]
    runtime = make_runtime(
        functions=[*functions, Function(join)],
        variables=[Variable("outbox", outbox, host=True)],
        sandbox=SandboxPolicy(check_first=True),
    )
    assert runtime.execute("send('a')\ntotal = 1").success
    cells = {
        "send('b')\nprint(totl)": ("NameError", "name 'totl' is not defined; nearest: total"),
        "send('b')\nsend()": ("TypeError", "Outbox.send() missing 1 required positional argument: 'text'"),
        "send('b')\nsend('c', 'd')": (
            "TypeError",
            "Outbox.send() takes 2 positional arguments but 3 were given",
        ),
        "send('b')\nsend('c', at='d')": (
            "TypeError",
            "Outbox.send() got an unexpected keyword argument 'at'",
        ),
        "send('b')\noutbox.send(to='x')": (
            "TypeError",
            "Outbox.send() missing 1 required positional argument",
        ),
        "send('b')\nawait post()": (
            "TypeError",
            "Outbox.post() missing 1 required positional argument: 'text'",
        ),
        "send('b')\njoin('c', 'd', 'e')": (
            "TypeError",
            "join() takes 2 positional arguments but 3 were given",
        ),
    }
    for code, (kind, message) in cells.items():
        result = runtime.execute(code)
        assert kind == result.error.type
        assert result.error.message.startswith(message)
        assert NOTHING_RAN in str(result.error)
        assert (2, "task", "kept") == (result.error.span.line, result.verdict.kind, result.state)
        assert "" == result.stdout
    assert [("a", "all")] == outbox.sent
    assert 1 == runtime.retrieve("total")
    steps = runtime.state.steps[-len(cells) :]
    assert [("failed", {})] * len(cells) == [(step.status, dict(step.writes)) for step in steps]
    assert not any(call for step in steps for call in step.host_calls)


def test_calls_that_may_fit_are_made(make_runtime):
    """A coroutine that is not awaited never raises; a decorated function may have another signature than it shows."""
    outbox = Outbox()
    runtime = make_runtime(
        functions=[Function(outbox.post, name="post", host=True), Function(given, host=True)],
        sandbox=SandboxPolicy(check_first=True),
    )
    assert runtime.execute("waiting = post()\nwaiting.close()").success
    assert "2" == runtime.execute("given(1)").value


def test_it_is_off_by_default(runtime):
    result = runtime.execute("print('ran')\nmissing")
    assert ("ran\n", "NameError") == (result.stdout, result.error.type)
    assert NOTHING_RAN not in str(result.error)


def join(first, second):
    return first + second


def _with_one(function):
    import functools

    @functools.wraps(function)
    def call(number):
        return function(1, number)

    return call


@_with_one
def given(one, number):
    return one + number
