"""Values that pass from jail to jail with host calls: references on the connection, never bytes."""

from __future__ import annotations

import pickle

from tests.behaviour.serving.test_attachment import answer
from tests.behaviour.serving.test_tour import values
from tests.support.serving.fixtures import World
from tests.support.serving.plain import Line, packed

from cenote_proto.v1 import failure_pb2, jail_pb2, runtime_pb2
from cenote_worker.execution.results import VariableInfo
from cenote_worker.serving.references import ReferenceOrigin
from cenote_worker.transport.content import Content

AGENT = jail_pb2.HostTarget(name="sub", kind=jail_pb2.HostTarget.AGENT)


def orchestrator(world: World) -> Line:
    """A connection to a runtime that knows of a sub-agent."""
    line = world.line(world.runtime())
    injection = runtime_pb2.Injection(values=values(), names=["sub"], hosts=[AGENT])
    assert line.answer(line.send(injection=injection)).reply.HasField("done")
    return line


def asked(line: Line, method: str) -> runtime_pb2.ServerFrame:
    frame = line.until(lambda frame: frame.HasField("host_call"))
    assert method == frame.host_call.method
    return frame


def put(world: World, value: object) -> str:
    """The tenant's reference to a value, held for the test."""
    data = packed(pickle.dumps(value))
    content = Content(size=len(data), count=1, inline=data)
    info = VariableInfo(name="made", type="str", size=len(data))
    origin = ReferenceOrigin(tenant="us", runtime="elsewhere", step=1)
    return world.references.put(content, info, origin, holder="test", lease=60).id


def refer(line: Line, call: int, **body: str) -> None:
    line.put(runtime_pb2.ClientFrame(call=call, host_answer=runtime_pb2.HostAnswer(**body)))


def test_a_value_for_another_runtime(world: World) -> None:
    """The client gets a reference, injects it there by id, and never sees a byte; it ends with the call."""
    line, target = orchestrator(world), world.line(world.runtime())
    cell = line.cell("sub.runtime.update_variable('data', list(range(50_000)))")
    call = asked(line, "runtime.update_variable")
    shared = call.host_call.value
    assert shared.size > 50_000
    injection = runtime_pb2.Injection(reference=shared.reference, name="data", replace=True)
    assert target.answer(target.send(injection=injection)).reply.HasField("done")
    answer(line, call.call, None)
    assert line.answer(cell).result.success
    assert "50000" == target.run("len(data)").value
    late = target.answer(target.send(injection=injection)).failure
    assert failure_pb2.Failure.NO_SUCH_REFERENCE == late.kind


def test_a_value_of_another_runtime(world: World) -> None:
    """The answer names a reference; the jail gets its value."""
    line = orchestrator(world)
    cell = line.cell("sub.runtime.retrieve('data')")
    refer(line, asked(line, "runtime.retrieve").call, sealed=put(world, "from afar"))
    assert "'from afar'" == line.answer(cell).result.value


def test_a_handle(world: World) -> None:
    """The jail can pass it on, it keeps the value alive, and its client is notified when it is dropped."""
    line = orchestrator(world)
    reference = put(world, "kept")
    cell = line.cell("handle = sub.runtime.share('data')\nprint(handle)")
    refer(line, asked(line, "runtime.share").call, reference=reference)
    assert "reference to str" in line.answer(cell).result.stdout
    world.references.release(reference, "us", holder="test")
    cell = line.cell("sub.runtime.update_variable('data', handle)")
    call = asked(line, "runtime.update_variable")
    assert reference == call.host_call.value.reference
    assert 2 == world.references.describe(reference, "us").holders
    answer(line, call.call, None)
    assert line.answer(cell).result.success
    line.run("del handle")
    dropped = line.until(lambda frame: frame.HasField("reference_dropped")).reference_dropped
    assert reference == dropped.reference


def test_handles_end_with_their_jail(world: World) -> None:
    """The handles of a lost jail are released."""
    line = orchestrator(world)
    reference = put(world, "kept")
    cell = line.cell("handle = sub.runtime.share('data')")
    refer(line, asked(line, "runtime.share").call, reference=reference)
    assert line.answer(cell).result.success
    line.answer(line.send(reset=runtime_pb2.Reset()))
    line.until(lambda frame: frame.HasField("reference_dropped"))


def test_a_reference_that_is_not_the_client_s(world: World) -> None:
    """The jail gets an error; nothing else happens."""
    line = orchestrator(world)
    cell = line.cell("sub.runtime.retrieve('data')")
    refer(line, asked(line, "runtime.retrieve").call, sealed="ref_unknown")
    assert "there is no object reference" in line.answer(cell).result.error.message
