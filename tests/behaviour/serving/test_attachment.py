"""Broken connections: a client that returns continues where it was; the state of one that does not is released."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from queue import SimpleQueue

import grpc
import pytest
from tests.behaviour.serving.test_tour import FUNCTION, values
from tests.support.serving.fixtures import World
from tests.support.serving.plain import Line, packed
from tests.waiting import PATIENCE, until

from cenote_proto.v1 import failure_pb2, jail_pb2, runtime_pb2
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.runtime.keyed_requests import RequestKey
from cenote_worker.serving.limits import MAX_IN_FLIGHT


def answer(line: Line, call: int, value: object) -> None:
    data = packed(pickle.dumps(value))
    body = runtime_pb2.HostAnswer(value=jail_pb2.Payload(inline=data, size=len(data), count=1))
    line.put(runtime_pb2.ClientFrame(call=call, host_answer=body))


def offer(line: Line) -> None:
    injection = runtime_pb2.Injection(values=values(), names=["double"], hosts=[FUNCTION])
    assert line.answer(line.send(injection=injection)).reply.HasField("done")


class Outcome:
    """A listener that waits for a result."""

    def __init__(self) -> None:
        self._results: SimpleQueue[object] = SimpleQueue()

    def output(self, stream: str, text: str) -> bool:
        return True

    def done(self, outcome: object) -> None:
        self._results.put(outcome)

    def wait(self) -> ExecutionResult:
        result = self._results.get(timeout=PATIENCE)
        assert isinstance(result, ExecutionResult)
        return result


def gone(line: Line) -> None:
    """The connection breaks, and the server has noticed."""
    line.cut()
    line.ended()


def status(line: Line) -> runtime_pb2.ServerFrame:
    """After its answer the server has processed everything that was sent before."""
    return line.answer(line.send(status=runtime_pb2.StatusQuestion()))


def test_a_cell_goes_on_while_its_line_is_broken(world: World) -> None:
    """If repeated with its key it is not run again; each character of its output arrives exactly once."""
    name = world.runtime()
    line = world.line(name)
    offer(line)
    call = line.cell("print('before')\ndouble(1)\nprint('after')\n'done'", key="k")
    line.until(lambda frame: frame.HasField("host_call"))
    heard = [one.text for one in line.output(call)]
    assert ["before\n"] == heard
    gone(line)
    back = world.line(name)
    again = back.cell("print('before')\ndouble(1)\nprint('after')\n'done'", key="k", heard=len("before\n"))
    asked = back.until(lambda frame: frame.HasField("host_call"))
    answer(back, asked.call, None)
    result = back.answer(again).result
    assert ("'done'", 1) == (result.value, result.step)
    assert [("after\n", 13)] == [(one.text, one.position) for one in back.output(again)]


def test_a_cell_that_ended_while_its_line_was_broken(world: World) -> None:
    """Its output and its result are stored for the client's return."""
    name = world.runtime()
    line = world.line(name)
    line.run("count = 0")
    call = line.cell("import time\nprint('on')\ntime.sleep(0.3)\nprint('late')\ncount += 1\ncount", key="k")
    line.until(lambda frame: frame.call == call)
    gone(line)
    back = world.line(name)
    again = back.cell("count += 1", key="k", heard=len("on\n"))
    assert "1" == back.answer(again).result.value
    assert ["late\n"] == [one.text for one in back.output(again)]
    assert "1" == back.run("count").value


def test_an_injection_is_carried_out_once(world: World) -> None:
    """The repetition gets the outcome of the first one, not an error of its own."""
    name = world.runtime()
    line = world.line(name)
    injection = runtime_pb2.Injection(values=values(x=[1]), names=["x"])
    assert line.answer(line.send("k", injection=injection)).reply.HasField("done")
    gone(line)
    back = world.line(name)
    assert back.answer(back.send("k", injection=injection)).reply.HasField("done")
    assert back.answer(back.send("other", injection=injection)).reply.HasField("refusal")


def returning(world: World, name: str) -> bool:
    """Whether the server still knows the client that connects now."""
    line = Line(world.address, name)
    world.lines.append(line)
    return line.welcome().returning


def test_a_returning_client_is_known(make_world: Callable[..., World]) -> None:
    """Within the grace period; after it, it is a new one."""
    patient, hasty = make_world(grace=600), make_world(grace=0.01)
    name = patient.runtime()
    gone(patient.line(name))
    assert returning(patient, name)
    name = hasty.runtime()
    gone(hasty.line(name))
    until(lambda: hasty.server.attached(name) == 0)
    assert not returning(hasty, name)


def test_a_client_that_leaves_is_not_waited_for(make_world: Callable[..., World]) -> None:
    """It said Goodbye and got its answers; the server ends the stream."""
    world = make_world(grace=600)
    name = world.runtime()
    line = world.line(name)
    call = line.cell("'last'")
    line.finish()
    assert "'last'" == line.answer(call).result.value
    assert line.ended().code is None
    until(lambda: world.server.attached(name) == 0)


def test_a_client_that_falls_silent_may_come_back(make_world: Callable[..., World]) -> None:
    """When a connection breaks, the server may only see the end of the stream. Answers are sent for as long as
    needed."""
    world = make_world(grace=600)
    name = world.runtime()
    line = world.line(name)
    call = line.cell("'last'", key="k")
    line.fall_silent()
    assert "'last'" == line.answer(call).result.value
    assert line.ended().code is None
    back = Line(world.address, name)
    world.lines.append(back)
    assert back.welcome().returning
    assert "'last'" == back.run("", key="k").value


def test_nothing_is_begun_behind_a_goodbye(make_world: Callable[..., World]) -> None:
    """It breaks the protocol; the client's running calls go on, and it can return to them."""
    world = make_world(grace=600)
    line = world.line(world.runtime())
    line.cell("print('on')\n__import__('time').sleep(600)")
    line.until(lambda frame: frame.HasField("output"))
    line.finish()
    line.cell("'late'")
    assert "behind Goodbye" in line.until(lambda frame: frame.HasField("failure")).failure.message
    assert grpc.StatusCode.ABORTED == line.ended().code


def test_the_cell_of_a_client_that_does_not_return(make_world: Callable[..., World]) -> None:
    """After the grace period it is interrupted, cells waiting after it never run, and the runtime continues."""
    world = make_world(grace=0.3)
    name = world.runtime()
    line = world.line(name)
    line.cell("import time\nprint('on')\ntime.sleep(600)", key="k")
    line.cell("late = True", key="behind")
    line.until(lambda frame: frame.HasField("output"))
    gone(line)
    other = world.line(name, "two")
    result = other.run("'late' in globals()")
    assert "False" == result.value
    call = other.send(outcome=runtime_pb2.OutcomeQuestion(key="k"))
    assert "interrupt" == other.answer(call).result.error.reason


@pytest.mark.slow
def test_a_returned_client_keeps_what_it_asked_for_again(make_world: Callable[..., World]) -> None:
    """The end of the broken connection's grace releases only what the client did not request again."""
    for grace in (1.5, 6.0, 24.0):  # a busy machine may delay the client for longer than that
        world = make_world(grace=grace)
        name = world.runtime()
        line = world.line(name)
        offer(line)
        line.cell("double(1)\n'mine'", key="k")
        line.cell("late = True", key="not wanted any more")
        line.until(lambda frame: frame.HasField("host_call"))
        supervisor = world.hosted[name].supervisor
        assert supervisor is not None
        until(lambda supervisor=supervisor: 1 == len(supervisor._work.waiting))
        left = time.monotonic()
        gone(line)
        back = world.line(name)
        again = back.cell("", key="k")
        assert status(back).HasField("status")
        if time.monotonic() - left < grace:
            break
    asked = back.until(lambda frame: frame.HasField("host_call"))
    until(lambda: 0 == len(supervisor._work.waiting))
    answer(back, asked.call, None)
    assert "'mine'" == back.answer(again).result.value
    assert "False" == back.run("'late' in globals()").value


def test_two_lines_of_one_client(world: World) -> None:
    """The newer one counts as a return: the older one ends, and running calls move over."""
    name = world.runtime()
    line = world.line(name)
    line.cell("import time\nprint('on')\ntime.sleep(0.5)\n'mine'", key="k")
    line.until(lambda frame: frame.HasField("output"))
    newer = world.line(name)
    failure = line.until(lambda frame: frame.HasField("failure"))
    assert (0, failure_pb2.Failure.UNAVAILABLE) == (failure.call, failure.failure.kind)
    assert "'mine'" == newer.run("", key="k").value


def test_a_host_call_waits_for_its_client(world: World) -> None:
    """It is sent again to the client that returns, with the same number and its arguments."""
    name = world.runtime()
    line = world.line(name)
    offer(line)
    line.cell("double(bytes(200_000))", key="k")
    first = line.until(lambda frame: frame.HasField("host_call"))
    assert first.host_call.arguments.size == len(line.content(first.call))
    gone(line)
    back = world.line(name)
    second = back.until(lambda frame: frame.HasField("host_call"))
    assert first.call == second.call
    assert second.host_call.arguments.size == len(back.content(second.call))
    answer(back, second.call, "late")
    assert "'late'" == back.run("", key="k").value


def test_an_answer_that_comes_twice(world: World) -> None:
    """Both are acknowledged, one is used."""
    line = world.line(world.runtime())
    offer(line)
    cell = line.cell("double(1)")
    asked = line.until(lambda frame: frame.HasField("host_call"))
    for value in ("first", "second"):
        answer(line, asked.call, value)
    for _ in range(2):
        assert line.until(lambda frame: frame.call == asked.call).HasField("host_answered")
    assert "'first'" == line.answer(cell).result.value


def test_a_host_call_whose_client_is_gone(make_world: Callable[..., World]) -> None:
    """The jail gets a clear error after the grace period; later calls get it at once."""
    world = make_world(grace=0.3)
    name = world.runtime()
    line = world.line(name)
    offer(line)
    other = world.line(name, "two")
    cell = other.cell("double(1)")
    line.until(lambda frame: frame.HasField("host_call"))
    gone(line)
    error = other.answer(cell).result.error
    assert ("RuntimeError", True) == (error.type, "that offered double has gone" in error.message)
    assert "has gone" in other.run("double(1)").error.message


def test_a_host_call_goes_to_whoever_offered_it(world: World) -> None:
    """Two clients of one runtime, each with its own function."""
    name = world.runtime()
    one, two = world.line(name, "one"), world.line(name, "two")
    offer(one)
    cell = two.cell("double(1)")
    asked = one.until(lambda frame: frame.HasField("host_call"))
    answer(two, asked.call, "not mine to answer")
    answer(one, asked.call, "mine")
    assert "'mine'" == two.answer(cell).result.value


def test_a_host_call_that_its_jail_gives_up(world: World) -> None:
    """Its client learns that the call is no longer waited for."""
    line = world.line(world.runtime())
    function = jail_pb2.HostTarget(name="slow", kind=jail_pb2.HostTarget.FUNCTION, is_async=True)
    injection = runtime_pb2.Injection(values=values(), names=["slow"], hosts=[function])
    assert line.answer(line.send(injection=injection)).reply.HasField("done")
    cell = line.cell("import asyncio\nawait asyncio.wait_for(slow(), 0.2)")
    asked = line.until(lambda frame: frame.HasField("host_call"))
    assert line.until(lambda frame: frame.HasField("host_cancel")).call == asked.call
    assert "TimeoutError" == line.answer(cell).result.error.type


def test_an_interrupt_hits_only_ones_own_cell(world: World) -> None:
    """Neither another client's running cell, nor an own cell that waits for it."""
    name = world.runtime()
    one, two = world.line(name, "one"), world.line(name, "two")
    offer(one)
    running = one.cell("double(1)\n'whole'")
    asked = one.until(lambda frame: frame.HasField("host_call"))
    behind = two.cell("'ran'")
    two.put(runtime_pb2.ClientFrame(interrupt=runtime_pb2.Interrupt()))
    assert status(two).HasField("status")
    answer(one, asked.call, None)
    assert "'whole'" == one.answer(running).result.value
    assert "'ran'" == two.answer(behind).result.value


@pytest.mark.parametrize("sent", [True, False], ids=["running", "waiting"])
def test_a_withdrawn_cell(world: World, sent: bool) -> None:
    """It is interrupted if it runs, dropped if it waits, and not answered either way."""
    name = world.runtime()
    line = world.line(name)
    first = line.cell("import time\nprint('on')\nfirst = 1\ntime.sleep(600)")
    line.until(lambda frame: frame.HasField("output"))
    second = line.cell("second = 1")
    if not sent:
        # One that is still on its way to the jail would be interrupted after those that end first.
        until(lambda: 1 == len(world.hosted[name].supervisor._work.waiting))
        line.put(runtime_pb2.ClientFrame(call=second, withdraw=runtime_pb2.Withdraw()))
    line.put(runtime_pb2.ClientFrame(call=first, withdraw=runtime_pb2.Withdraw()))
    last = line.cell("'second' in globals()")
    assert str(sent) == line.answer(last).result.value
    answered = {frame.call for frame in line._kept if frame.HasField("result")}
    assert ({second} if sent else set()) == answered


def test_withdrawn_cells_give_their_turns_back(world: World) -> None:
    """However many a client withdraws, like a service whose users leave, its next cell runs."""
    line = world.line(world.runtime())
    for _ in range(MAX_IN_FLIGHT):
        running = line.cell("print('on')\nimport time\ntime.sleep(600)")
        line.until(lambda frame, call=running: frame.call == call and frame.HasField("output"))
        line.put(runtime_pb2.ClientFrame(call=running, withdraw=runtime_pb2.Withdraw()))
    assert "42" == line.run("6 * 7").value


def test_a_runtime_that_is_removed(world: World) -> None:
    """Its clients are told to look elsewhere; the runtime itself continues."""
    name = world.runtime()
    line = world.line(name)
    line.run("x = 1")
    world.server.remove(name)
    failure = line.until(lambda frame: frame.HasField("failure")).failure
    assert failure_pb2.Failure.UNAVAILABLE == failure.kind
    assert world.hosted[name].running


def test_a_closed_stream_never_ends_the_runtime(world: World) -> None:
    """The namespace is available to the next client."""
    name = world.runtime()
    line = world.line(name)
    line.run("x = 1")
    gone(line)
    assert "1" == world.line(name, "two").run("x").value


def test_a_cell_that_nobody_remembers(world: World) -> None:
    """Its client has received output of it, so it ran: a server that does not know it does not run it again."""
    line = world.line(world.runtime())
    failure = line.answer(line.cell("ran = True", key="lost", heard=3)).failure
    assert failure_pb2.Failure.OUTCOME_UNKNOWN == failure.kind
    assert "False" == line.run("'ran' in globals()").value


def test_a_host_call_of_a_runtime_that_is_not_served(world: World) -> None:
    """Calls that wait when the server releases it fail, and so do later ones; the jail never hangs."""
    name = world.runtime()
    line = world.line(name)
    offer(line)
    line.cell("try:\n    double(1)\nexcept RuntimeError as error:\n    print(error)\ndouble(2)", key="k")
    line.until(lambda frame: frame.HasField("host_call"))
    world.server.remove(name)
    outcome = Outcome()
    world.hosted[name].join(RequestKey(text="k"), outcome)
    result = outcome.wait()
    assert "RuntimeError" == (result.error and result.error.type)
    assert "that offered double has gone" in result.stdout
