"""Processes next to namespaces of a platform: relayed and direct, counted, recorded, separate by tenant."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import grpc
import pytest
from tests.support.gateway.world import BARE, World

from cenote.cli.main import main
from cenote.gateway.audit.reader import entries
from cenote.gateway.values.quota import Quota
from cenote.runtime import PythonRuntime
from cenote_proto.v1 import runtime_pb2
from cenote_proto.v1.runtime_pb2_grpc import RuntimeServiceStub
from cenote_security.errors import QuotaExceededError


def test_a_process_and_its_conversation(either: World) -> None:
    """The same whether the gateway relays it or the client connects directly."""
    acme = either.user("acme")
    with PythonRuntime(address=either.address, token=acme.token, sandbox=BARE) as runtime:
        result = runtime.run("cat; exit 3", stdin="in")
        assert (3, "in") == (result.exit_code, result.stdout)
        with runtime.spawn(["wc", "-c"]) as process:
            process.send_input("x" * 3_000_000)
            process.close_stdin()
            assert b"3000000\n" == process.stdout.read()


def test_another_tenant_runs_nothing(either: World) -> None:
    """A runtime of another tenant looks like one that does not exist."""
    acme, rival = either.user("acme"), either.user("rival")
    runtime = acme.create("mine")
    stub = RuntimeServiceStub(rival.channel)
    start = runtime_pb2.ProcessStart(runtime=runtime.id, client="one", argv=[b"true"])
    call = stub.RunProcess(
        iter([runtime_pb2.ProcessInput(start=start)]), metadata=(("authorization", f"Bearer {rival.token}"),)
    )
    with pytest.raises(grpc.RpcError) as refused:
        list(call)
    assert grpc.StatusCode.NOT_FOUND == refused.value.code()


@pytest.mark.parametrize(
    "first",
    [
        runtime_pb2.ProcessInput(kill=True),
        runtime_pb2.ProcessInput(start=runtime_pb2.ProcessStart(client="one")),
        runtime_pb2.ProcessInput(start=runtime_pb2.ProcessStart(client="one", argv=[b"a\0b"])),
    ],
)
def test_what_begins_wrongly(world: World, first: runtime_pb2.ProcessInput) -> None:
    acme = world.user("acme")
    call = RuntimeServiceStub(acme.channel).RunProcess(
        iter([first]), metadata=(("authorization", f"Bearer {acme.token}"),)
    )
    with pytest.raises(grpc.RpcError) as refused:
        list(call)
    assert grpc.StatusCode.INTERNAL != refused.value.code()


def test_it_is_on_record_as_cells_are(world: World) -> None:
    """Its arguments, its exit status, its output size; not the output."""
    acme = world.user("acme")
    with PythonRuntime(address=world.address, token=acme.token, sandbox=BARE) as runtime:
        runtime.run("echo hunter2; exit 7")
    world.close()
    (cell,) = [entry.event for entry in entries(world.state.audit) if entry.event.kind == "cell"]
    assert (acme.token_id, acme.tenant) == (cell.token, cell.tenant)
    assert ("!echo hunter2; exit 7", False, 8) == tuple(
        cell.facts[name] for name in ("first_line", "success", "output_bytes")
    )


def test_it_counts_as_a_cell(world: World) -> None:
    """At the limit it runs, one past it is refused, and its end frees the quota."""
    acme = world.user("acme")
    world.stores.quotas.set_limit(acme.tenant, Quota.CELLS, 1)
    with PythonRuntime(address=world.address, token=acme.token, sandbox=BARE) as runtime:
        with runtime.spawn(["sleep", "3600"]) as process:
            assert process.pid
            with pytest.raises(QuotaExceededError):
                runtime.run("true")
        assert 0 == runtime.run("true").exit_code


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """It passes on the program's streams and its status."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with closing(World(tmp_path)) as world:
        monkeypatch.setenv("CENOTE_TOKEN", world.user("acme").token)

        def run(*arguments: str) -> tuple[int, bytes, bytes]:
            capfdbinary.readouterr()
            status = main(["runtime", *arguments])
            return status, *capfdbinary.readouterr()

        where = ("--address", world.address)
        assert 0 == run("create", "etl", *where)[0]
        assert (0, b"-l\n", b"") == run("run", "etl", *where, "--", "echo", "-l")
        shell = run(
            "run", "etl", *where, "-c", "echo $A; pwd; echo e >&2; exit 9", "--env", "A=1", "--cwd", "/"
        )
        assert (9, b"1\n/\n", b"e\n") == shell
        assert 124 == run("run", "etl", *where, "--timeout", "0.1", "--", "sleep", "3600")[0]
        assert 139 == run("run", "etl", *where, "-c", "kill -SEGV $$")[0]
        assert 2 == run("run", "etl", *where)[0]
        assert 2 == run("run", "nobody", *where, "--", "true")[0]
