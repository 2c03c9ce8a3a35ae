"""The whole tour with plain stubs: everything that a runtime offers, over a real socket, from a real jail."""

from __future__ import annotations

import pickle

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.support.serving.fixtures import World
from tests.support.serving.plain import Line, LineEnded, packed, plain, unpacked

from cenote_proto.v1 import failure_pb2, jail_pb2, reference_pb2, runtime_pb2
from cenote_proto.v1.reference_pb2_grpc import ReferenceServiceStub
from cenote_worker.serving.served_runtime import SerialExecutor

FUNCTION = jail_pb2.HostTarget(name="double", kind=jail_pb2.HostTarget.FUNCTION, signature="(x)")


def values(**named: object) -> jail_pb2.Payload:
    """A pickle of values, as an injection carries it."""
    data = packed(pickle.dumps((named, {})))
    return jail_pb2.Payload(inline=data, size=len(data), count=1)


def test_a_cell(world: World) -> None:
    """Code goes in; its output arrives as it is printed, then the result."""
    line = world.line(world.runtime())
    call = line.cell("import sys\nprint('hello')\nprint('oh', file=sys.stderr)\n6 * 7")
    result = line.answer(call).result
    assert ("42", 1, "hello\n", "oh\n") == (result.value, result.step, result.stdout, result.stderr)
    printed = [(one.is_stderr, one.text, one.position) for one in line.output(call)]
    assert [(False, "hello\n", 6), (True, "oh\n", 9)] == printed


def test_a_cell_that_fails(world: World) -> None:
    """An exception of the code is a field of the result."""
    result = world.line(world.runtime()).run("1 / 0")
    assert (False, "ZeroDivisionError", [1, 0, 1, 5]) == (
        result.success,
        result.error.type,
        list(result.error.span),
    )


def test_cells_run_in_the_order_in_which_they_came(world: World) -> None:
    """A client need not wait for one answer before it sends the next call."""
    line = world.line(world.runtime())
    calls = [line.cell(f"seen = [*globals().get('seen', ()), {number}]") for number in range(30)]
    last = line.run("seen")
    assert str(list(range(30))) == last.value
    assert list(range(1, 31)) == [line.answer(call).result.step for call in calls]


def test_a_start(world: World) -> None:
    """The answer names what isolates the jail."""
    line = world.line(world.runtime())
    started = line.answer(line.send(start=runtime_pb2.Start())).started
    assert started.isolation in ("strict", "landlock")
    assert started.limits


def test_values_in_and_out(world: World) -> None:
    """A pickle goes in, the safe encoding comes out, a name is described and deleted."""
    line = world.line(world.runtime())
    injection = runtime_pb2.Injection(values=values(x=[1, 2]), names=["x"])
    assert line.answer(line.send("k1", injection=injection)).reply.HasField("done")
    reply = line.answer(line.send("k2", injection=injection)).reply
    assert (jail_pb2.Refusal.NAME_EXISTS, "x") == (reply.refusal.kind, reply.refusal.name)
    value = line.answer(line.send(fetch=jail_pb2.Fetch(name="x"))).reply.value
    assert ("x", "list", 2) == (
        value.info.name,
        value.info.type,
        len(unpacked(value.content, value.content.inline)),
    )
    described = line.answer(line.send(describe=jail_pb2.Describe())).reply.variables.variables
    assert ["x"] == [one.name for one in described]
    assert line.answer(line.send("k3", delete=jail_pb2.Delete(name="x"))).reply.HasField("done")
    assert (
        jail_pb2.Refusal.UNKNOWN_NAME
        == line.answer(line.send(fetch=jail_pb2.Fetch(name="x"))).reply.refusal.kind
    )


def test_files(world: World) -> None:
    """Written, listed, read in part, deleted; a missing file is refused."""
    line = world.line(world.runtime())
    path, operations = b"notes.txt", jail_pb2.FileRequest

    def ask(**fields: object) -> jail_pb2.Reply:
        return line.answer(line.send(file=jail_pb2.FileRequest(**fields))).reply

    assert ask(operation=operations.WRITE, path=path, content=plain(b"0123456789")).HasField("done")
    entries = ask(operation=operations.LIST, limit=10).folder.entries
    assert [(path, 10)] == [(entry.name, entry.size) for entry in entries]
    part = ask(operation=operations.READ, path=path, offset=2, limit=3, ranged=True).file.content
    assert b"234" == part.inline
    assert ask(operation=operations.DELETE, path=path).HasField("done")
    assert jail_pb2.Refusal.NO_FILE == ask(operation=operations.STAT, path=path).refusal.kind


def test_a_status_while_a_cell_runs(world: World) -> None:
    """It is answered at once, without waiting for the cell."""
    line = world.line(world.runtime())
    call = line.cell("import time\nprint('on')\ntime.sleep(600)")
    line.until(lambda frame: frame.HasField("output"))
    status = line.answer(line.send(status=runtime_pb2.StatusQuestion())).status
    assert 1 == status.step
    assert status.memory > 1_000_000
    line.put(runtime_pb2.ClientFrame(interrupt=runtime_pb2.Interrupt()))
    assert "interrupt" == line.answer(call).result.error.reason


def test_a_reset(world: World) -> None:
    """The namespace is as it was injected."""
    line = world.line(world.runtime())
    line.answer(line.send(injection=runtime_pb2.Injection(values=values(x=1), names=["x"])))
    line.run("x, y = 2, 3")
    assert line.answer(line.send(reset=runtime_pb2.Reset())).reply.HasField("done")
    assert "(1, False)" == line.run("x, 'y' in globals()").value


def test_a_host_call(world: World) -> None:
    """The jail calls what its client offered; the answer is acknowledged."""
    line = world.line(world.runtime())
    offer = runtime_pb2.Injection(values=values(), names=["double"], hosts=[FUNCTION])
    line.answer(line.send(injection=offer))
    cell = line.cell("double(21)")
    asked = line.until(lambda frame: frame.HasField("host_call"))
    assert ("double", "") == (asked.host_call.target, asked.host_call.method)
    assert asked.call >= 1 << 63
    data = packed(pickle.dumps(42))
    answer = runtime_pb2.HostAnswer(value=jail_pb2.Payload(inline=data, size=len(data), count=1))
    line.put(runtime_pb2.ClientFrame(call=asked.call, host_answer=answer))
    assert line.until(lambda frame: frame.call == asked.call).HasField("host_answered")
    assert "42" == line.answer(cell).result.value


def test_a_host_call_that_fails(world: World) -> None:
    """The jail gets the exception's name and text."""
    line = world.line(world.runtime())
    line.answer(
        line.send(injection=runtime_pb2.Injection(values=values(), names=["double"], hosts=[FUNCTION]))
    )
    cell = line.cell("double(21)")
    asked = line.until(lambda frame: frame.HasField("host_call"))
    error = jail_pb2.HostError(type="KeyError", message="nothing there")
    line.put(runtime_pb2.ClientFrame(call=asked.call, host_answer=runtime_pb2.HostAnswer(error=error)))
    assert "KeyError" == line.answer(cell).result.error.type


def test_a_reference(world: World) -> None:
    """A value is shared, held, read, injected into another runtime, and goes with its last holder."""
    line, other = world.line(world.runtime()), world.line(world.runtime())
    line.run("data = bytes(100_000)")
    shared = line.answer(line.send(share=runtime_pb2.Share(name="data"))).shared
    assert ("data", "bytes") == (shared.info.name, shared.info.type)
    by_id = runtime_pb2.Injection(reference=shared.reference, name="copy", replaces="copy", names=["copy"])
    assert other.answer(other.send(injection=by_id)).reply.HasField("done")
    assert "100000" == other.run("len(copy)").value
    stub, terms = (
        ReferenceServiceStub(grpc.insecure_channel(world.address)),
        (("authorization", "Bearer good"),),
    )
    request = reference_pb2.ReferenceId(id=shared.reference)
    assert 1 == stub.GetReference(request, metadata=terms).step
    hold = reference_pb2.HoldRequest(id=shared.reference, holder="me", lease=60)
    assert 1 == stub.HoldReference(hold, metadata=terms).holders
    assert shared.size == sum(len(chunk.data) for chunk in stub.ReadReference(request, metadata=terms))
    listed = stub.ListReferences(reference_pb2.ListReferencesRequest(), metadata=terms).references
    assert [shared.reference] == [one.id for one in listed]
    stub.ReleaseReference(reference_pb2.ReleaseRequest(id=shared.reference, holder="me"), metadata=terms)
    with pytest.raises(grpc.RpcError) as caught:
        stub.GetReference(request, metadata=terms)
    assert grpc.StatusCode.NOT_FOUND == caught.value.code()
    assert "100000" == other.run("len(copy)").value


def test_a_reference_that_is_here_takes_no_thread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is injected on the loop. A value that may have to be fetched is waited for on a thread."""
    line, lane = world.line(world.runtime()), list[str]()
    line.run("data = 1")
    shared = line.answer(line.send(share=runtime_pb2.Share(name="data"))).shared.reference
    begin = SerialExecutor._begin
    monkeypatch.setattr(SerialExecutor, "_begin", lambda self: (lane.append("begun"), begin(self)))
    for reference, begun in ((shared, []), ("ref_of_nobody", ["begun"])):
        by_id = runtime_pb2.Injection(reference=reference, name="copy", replaces="copy", names=["copy"])
        line.answer(line.send(injection=by_id))
        assert begun == lane
    assert "1" == line.run("copy").value


def test_a_reference_is_its_tenants(world: World) -> None:
    """Another tenant can neither see nor use it; the answer is that of one that does not exist."""
    line, theirs = world.line(world.runtime()), world.line(world.runtime("them"), token="other")
    line.run("data = 1")
    shared = line.answer(line.send(share=runtime_pb2.Share(name="data"))).shared
    by_id = runtime_pb2.Injection(reference=shared.reference, name="copy")
    failure = theirs.answer(theirs.send(injection=by_id)).failure
    assert failure_pb2.Failure.NO_SUCH_REFERENCE == failure.kind
    stub = ReferenceServiceStub(grpc.insecure_channel(world.address))
    terms = (("authorization", "Bearer other"),)
    assert not stub.ListReferences(reference_pb2.ListReferencesRequest(), metadata=terms).references


def test_an_outcome(world: World) -> None:
    """Any client of the runtime can query the outcome of a call by its key."""
    name = world.runtime()
    world.line(name).run("print('once')\n'done'", key="k")
    line = world.line(name, "two")
    call = line.send(outcome=runtime_pb2.OutcomeQuestion(key="k"))
    assert "'done'" == line.answer(call).result.value
    assert ["once\n"] == [one.text for one in line.output(call)]
    unknown = line.answer(line.send(outcome=runtime_pb2.OutcomeQuestion(key="?"))).failure
    assert failure_pb2.Failure.OUTCOME_UNKNOWN == unknown.kind


def test_a_network_log(world: World) -> None:
    """Empty where there is no network."""
    line = world.line(world.runtime())
    log = line.answer(line.send(network_log=runtime_pb2.NetworkLogQuestion())).network_log
    assert not log.decisions


def test_a_welcome(world: World) -> None:
    """It contains the version, whether the client is known, and the policy."""
    name = world.runtime(memory="512MiB")
    line = Line(world.address, name)
    welcome = line.welcome()
    assert (1, False, 512 << 20) == (welcome.version, welcome.returning, welcome.policy.memory)
    line.finish()
    assert line.ended().code is None


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        ({"runtime": "us-0"}, grpc.StatusCode.NOT_FOUND),
        ({"runtime": "them-1"}, grpc.StatusCode.NOT_FOUND),
        ({"token": "bad"}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"oldest_version": 2, "newest_version": 3}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"client": ""}, grpc.StatusCode.ABORTED),
    ],
)
def test_a_line_that_is_refused(world: World, hello: dict[str, object], code: grpc.StatusCode) -> None:
    """It does not reveal whether another tenant's runtime exists; versions are negotiated first."""
    world.runtime("them")
    line = Line(world.address, **{"runtime": world.runtime(), **hello})
    with pytest.raises(LineEnded) as caught:
        line.welcome()
    assert code == caught.value.code
    metadata = dict(line.stream.trailing_metadata())
    assert failure_pb2.Failure.FromString(metadata["cenote-failure-bin"]).message


def test_a_token_that_only_reads(world: World) -> None:
    """Each call is checked; the stream continues."""
    line = world.line(world.runtime(), token="reader")
    assert failure_pb2.Failure.REJECTED == line.answer(line.cell("x = 1")).failure.kind
    assert not line.answer(line.send(describe=jail_pb2.Describe())).reply.variables.variables


def test_health_and_reflection(world: World) -> None:
    """gRPC's own tools can query the server's health, and its services."""
    channel = grpc.insecure_channel(world.address)
    health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert health_pb2.HealthCheckResponse.SERVING == health.status
    asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    answers = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked)
    names = [service.name for service in next(answers).list_services_response.service]
    assert "cenote_proto.v1.RuntimeService" in names
