"""The OpenAI Agents SDK's sessions, agents and tools in jails: its interface of sandbox clients, whole."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cenote import AsyncPythonRuntime, SandboxPolicy
from cenote_security.errors import UsageError

pytest.importorskip("agents", reason="needs openai-agents: `make test-peers` has it")

from agents import RunConfig, Runner, function_tool, set_tracing_disabled
from agents.run_state import RunState
from agents.sandbox import Manifest, SandboxAgent, SandboxPathGrant, SandboxRunConfig
from agents.sandbox.capabilities import Filesystem, Shell
from agents.sandbox.entries import Dir, File, LocalDir, LocalFile
from agents.sandbox.errors import (
    ConfigurationError,
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    InvalidManifestPathError,
    PtySessionNotFoundError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from agents.sandbox.session import BaseSandboxClientOptions, SandboxSessionState
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.sandbox.types import User
from agents.testing import ScriptedModel, assistant_message, function_call

from cenote.adapters.openai_agents import PythonCapability
from cenote.adapters.openai_agents_sandbox import (
    CenoteSandboxClient,
    CenoteSandboxClientOptions,
    CenoteSandboxSessionState,
    runtime_of,
)

set_tracing_disabled(True)
POLICY = SandboxPolicy(memory="512MiB")


def client(**options: Any) -> CenoteSandboxClient:
    return CenoteSandboxClient(sandbox=POLICY, **options)


@pytest.fixture
async def session() -> AsyncIterator[Any]:
    own = client()
    made = await own.create(
        manifest=Manifest(
            entries={
                "notes.md": File(content=b"# notes\n"),
                "data": Dir(children={"paid.csv": File(content=b"city,paid\nOslo,30\n")}),
            },
            environment={"value": {"GIVEN": "by the manifest"}},
        )
    )
    async with made:
        yield made
    await own.delete(made)


async def shown(session: Any, command: str, **options: Any) -> str:
    found = await session.exec(command, **options)
    assert (found.exit_code, found.stderr) == (0, b"")
    return str(found.stdout.decode())


# -- commands --


async def test_the_manifest_is_laid_out_in_the_workspace(session: Any) -> None:
    assert "# notes\ncity,paid\nOslo,30\n" == await shown(session, "cat notes.md data/paid.csv")
    assert f"{session.state.manifest.root}\n" == await shown(session, "pwd")
    assert "by the manifest\n" == await shown(session, "echo $GIVEN")


async def test_a_command_that_fails_says_so(session: Any) -> None:
    found = await session.exec("echo out; echo err >&2; exit 3")
    assert (3, b"out\n", b"err\n") == (found.exit_code, found.stdout, found.stderr)
    assert 127 == (await session.exec("there-is-no-such-program", shell=False)).exit_code
    assert 128 + 11 == (await session.exec("kill -SEGV $$")).exit_code


async def test_a_list_of_words_is_not_read_by_a_shell(session: Any) -> None:
    found = await session.exec("printf", "%s|", "a b", "$GIVEN", shell=False)
    assert b"a b|$GIVEN|" == found.stdout


async def test_a_command_that_takes_too_long_is_ended(session: Any) -> None:
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 600", timeout=0.5)
    assert "" == await shown(session, "ps -eo args | grep '[s]leep 600' || true")
    with pytest.raises(ExecTimeoutError):
        await session.exec("true", timeout=0)


async def test_output_that_is_left_out_is_counted() -> None:
    """Nothing is cut silently."""
    own = CenoteSandboxClient(sandbox=SandboxPolicy(memory="512MiB", output="64KiB"))
    made = await own.create()
    async with made:
        found = await made.exec("head -c 100000 /dev/zero | tr '\\0' x; echo end")
        assert found.stdout.endswith(b"end\n")
        assert b"bytes of output are left out" in found.stderr
    await own.delete(made)


async def test_the_time_of_the_options_holds_where_a_call_names_none() -> None:
    own = client()
    made = await own.create(options=CenoteSandboxClientOptions(timeout=100))
    async with made:
        assert 100 == made.state.timeout
        made.state.timeout = 0.5  # from now on: what lays out the workspace may be slow
        with pytest.raises(ExecTimeoutError):
            await made.exec("sleep 600")
    await own.delete(made)


# -- files --


async def test_files_are_written_listed_read_moved_and_removed(session: Any) -> None:
    data = bytes(range(256)) * 4000
    await session.mkdir(Path("made/deep"), parents=True)
    await session.write(Path("made/deep/a.bin"), io.BytesIO(data))
    await session.write(Path("made/text"), io.StringIO("å"))
    assert data == (await session.read(Path("made/deep/a.bin"))).read()
    assert "å".encode() == (await session.read(Path("made/text"))).read()
    assert data[:10] == await session.read_bounded(Path("made/deep/a.bin"), max_bytes=10)
    assert ["a.bin"] == [Path(entry.path).name for entry in await session.ls(Path("made/deep"))]
    await session.mv("made/text", "made/deep/text")
    assert await session.same_file("made/deep/text", "made/deep/../deep/text")
    await session.rm(Path("made"), recursive=True)
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("made/deep/a.bin"))


async def test_a_file_replaces_an_older_one(session: Any) -> None:
    for text in (b"long before", b"now"):
        await session.write(Path("same"), io.BytesIO(text))
    assert "now" == await shown(session, "cat same")


async def test_a_folder_that_the_manifest_grants_is_there() -> None:
    own = client()
    made = await own.create(manifest=Manifest(extra_path_grants=(SandboxPathGrant(path="/tmp"),)))
    async with made:
        await made.write(Path("/tmp/granted"), io.BytesIO(b"x"))
        assert b"x" == (await made.read(Path("/tmp/granted"))).read()
    await own.delete(made)


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "way/out"])
async def test_a_path_out_of_the_workspace_is_refused(session: Any, path: str) -> None:
    """Whether it says so itself, or a link on it does."""
    await shown(session, "ln -s / way")
    for access in (
        session.read(Path(path)),
        session.write(Path(path), io.BytesIO(b"x")),
        session.mkdir(path),
    ):
        with pytest.raises(InvalidManifestPathError):
            await access


async def test_a_folder_cannot_be_written_as_a_file(session: Any) -> None:
    with pytest.raises(WorkspaceArchiveWriteError):
        await session.write(Path("data"), io.BytesIO(b"x"))


async def test_a_patch_of_the_sdk_is_applied(session: Any) -> None:
    await session.apply_patch({"type": "update_file", "path": "notes.md", "diff": "-# notes\n+# changed\n"})
    await session.apply_patch({"type": "create_file", "path": "new/a.txt", "diff": "+first"})
    assert "# changed\nfirst" == (await shown(session, "cat notes.md new/a.txt")).rstrip("\n")


async def test_an_archive_is_unpacked(session: Any) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo("inner/hello.txt")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"hello"))
    archive.seek(0)
    await session.extract("packed/bundle.tar", archive, compression_scheme="tar")
    assert "hello" == await shown(session, "cat packed/inner/hello.txt")


async def test_files_of_this_machine_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b.txt").write_text("b")
    (tmp_path / "a.txt").write_text("a")
    monkeypatch.chdir(tmp_path)
    own = client()
    made = await own.create(
        manifest=Manifest(entries={"a": LocalFile(src=Path("a.txt")), "c": LocalDir(src=Path("folder"))})
    )
    async with made:
        assert "ab" == await shown(made, "cat a c/b.txt")
    await own.delete(made)


# -- programs that go on --


async def test_a_terminal_is_typed_into(session: Any) -> None:
    started = await session.pty_exec_start("cat", shell=False, tty=True, yield_time_s=0.25)
    assert started.process_id is not None
    seen, number = started.output, started.process_id
    found = await session.pty_write_stdin(session_id=number, chars="typed\n", yield_time_s=0.25)
    while b"typed\r\ntyped" not in (seen := seen + found.output):  # the echo, and what cat says
        found = await session.pty_write_stdin(session_id=number, chars="", yield_time_s=0.25)
    found = await session.pty_write_stdin(session_id=number, chars="\x04", yield_time_s=30)
    assert (None, 0) == (found.process_id, found.exit_code)
    with pytest.raises(PtySessionNotFoundError):
        await session.pty_write_stdin(session_id=number, chars="")


async def test_a_program_that_goes_on_is_asked_again_and_ended_with_the_session(session: Any) -> None:
    started = await session.pty_exec_start("echo one; exec sleep 600", yield_time_s=0.25)
    assert started.process_id is not None
    with pytest.raises(RuntimeError, match="stdin is not available"):
        await session.pty_write_stdin(session_id=started.process_id, chars="x")
    await session.pty_terminate_all()
    assert "" == await shown(session, "ps -eo args | grep '[s]leep 600' || true")


async def test_a_program_that_ends_in_time_is_waited_for(session: Any) -> None:
    started = await session.pty_exec_start("echo one; echo two >&2; exit 4", yield_time_s=30)
    assert (None, 4) == (started.process_id, started.exit_code)
    assert {b"one", b"two"} == set(started.output.split())


# -- one runtime: namespace and shell --


async def test_the_session_has_a_namespace_with_the_same_files(session: Any) -> None:
    runtime = runtime_of(session)
    assert runtime is not None
    done = await runtime.execute("open('data/paid.csv').read().splitlines()[1]")
    assert "'Oslo,30'" == done.value


async def test_a_session_that_lost_its_jail_says_so(session: Any) -> None:
    runtime = runtime_of(session)
    assert runtime is not None
    assert await session.running()
    await runtime.close()
    assert not await session.running()
    with pytest.raises(ExecTransportError, match="closed"):
        await session.exec("true")


# -- snapshots and resuming --


async def test_files_leave_in_an_archive_and_come_to_another_session(session: Any) -> None:
    await session.write(Path("carried.txt"), io.BytesIO(b"carried"))
    await shown(session, "ln -s carried.txt link")
    session.register_persist_workspace_skip_path("data")
    archive = await session.persist_workspace()
    other = client()
    made = await other.create()
    async with made:
        await made.hydrate_workspace(archive)
        assert "carried\n" == await shown(made, "cat link; echo; ls data 2>/dev/null || true")
    await other.delete(made)


async def test_an_archive_that_leaves_the_workspace_is_refused(session: Any) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("../out"))
    archive.seek(0)
    with pytest.raises(WorkspaceArchiveWriteError):
        await session.hydrate_workspace(archive)


async def test_a_session_is_resumed_by_its_state(tmp_path: Path) -> None:
    """While its jail is there, with its namespace; later, with the files of its snapshot."""
    own = client()
    first = await own.create(snapshot=LocalSnapshotSpec(base_path=tmp_path))
    await first.start()
    await first.write(Path("here.txt"), io.BytesIO(b"still"))
    before = runtime_of(first)
    assert before is not None
    await before.execute("x = 1")
    await first.stop()
    stored = own.serialize_session_state(first.state)

    again = await own.resume(own.deserialize_session_state(json.loads(json.dumps(stored))))
    async with again:
        assert runtime_of(again) is before
        assert "still" == await shown(again, "cat here.txt")
        assert "1" == (await before.execute("x")).value
    await own.delete(again)
    await own.delete(again)

    later = client()
    third = await later.resume(later.deserialize_session_state(json.loads(json.dumps(stored))))
    async with third:
        assert "still" == await shown(third, "cat here.txt")
    await later.delete(third)


async def test_sessions_over_a_runtime_of_the_caller_leave_it_as_it_is(tmp_path: Path) -> None:
    async with AsyncPythonRuntime(sandbox=POLICY) as runtime:
        own = CenoteSandboxClient(runtime)
        first = await own.create(snapshot=LocalSnapshotSpec(base_path=tmp_path))
        async with first:
            await first.write(Path("a.txt"), io.BytesIO(b"a"))
        await own.delete(first)
        await runtime.execute("open('b.txt', 'w').write('written by a cell')")
        async with await own.resume(first.state) as again:
            assert "a.txt\nb.txt\n" == await shown(again, "ls")
        await own.delete(again)
        assert "2" == (await runtime.execute("1 + 1")).value


def test_options_and_states_are_found_by_their_name() -> None:
    options = BaseSandboxClientOptions.parse({"type": "cenote", "timeout": 5})
    assert CenoteSandboxClientOptions(timeout=5) == options
    state = CenoteSandboxSessionState(
        snapshot={"type": "noop", "id": "s"}, manifest=Manifest(), working_dir="/w"
    )
    assert state == SandboxSessionState.parse(json.loads(state.model_dump_json()))
    assert "cenote" == CenoteSandboxClient.backend_id


# -- what no jail has --


@pytest.mark.parametrize(
    "manifest",
    [
        Manifest(users=[User(name="other")]),
        Manifest(root="/srv/elsewhere"),
        Manifest(extra_path_grants=(SandboxPathGrant(path="/x", host_path="/etc"),)),
    ],
    ids=["users", "root", "host paths"],
)
async def test_what_no_jail_has_is_refused_before_one_starts(manifest: Manifest) -> None:
    own = client()
    with pytest.raises(ConfigurationError):
        await own.create(manifest=manifest)
    assert {} == own._own


async def test_other_users_and_ports_are_refused(session: Any) -> None:
    for access in (
        session.exec("true", user="root"),
        session.read(Path("notes.md"), user="root"),
        session.write(Path("notes.md"), io.BytesIO(b""), user="root"),
        session.pty_exec_start("true", user="root"),
    ):
        with pytest.raises(ConfigurationError, match="one user"):
            await access
    with pytest.raises(ExposedPortUnavailableError):
        await session.resolve_exposed_port(80)


async def test_options_of_another_client_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="another client"):
        await client().create(options=object())  # type: ignore[arg-type]


def test_options_beside_a_runtime_are_refused() -> None:
    with pytest.raises(UsageError, match="there already"):
        CenoteSandboxClient(AsyncPythonRuntime(), sandbox=POLICY)


# -- agents --


def script(*calls: tuple[str, dict[str, Any]]) -> ScriptedModel:
    steps: list[Any] = [[function_call(*call, call_id=uuid.uuid4().hex)] for call in calls]
    return ScriptedModel([*steps, [assistant_message("done")]])


def outputs(result: Any) -> list[str]:
    return [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]


async def test_an_agent_works_with_shell_and_python_on_the_same_files() -> None:
    agent = SandboxAgent(
        name="worker",
        model=script(
            ("exec_command", {"cmd": "echo 41 > number.txt"}),
            ("python", {"code": "n = int(open('number.txt').read()) + 1"}),
            ("python", {"code": "open('number.txt', 'w').write(str(n))\nn"}),
            ("exec_command", {"cmd": "cat number.txt"}),
        ),
        instructions="Work.",
        capabilities=[Shell(), Filesystem(), PythonCapability(timeout=60)],
    )
    done = await Runner.run(agent, "Count.", run_config=RunConfig(sandbox=SandboxRunConfig(client=client())))
    assert "done" == done.final_output
    _, _, python, shell = outputs(done)
    assert "42" == python
    assert "42" in shell


async def test_a_run_that_waits_for_an_approval_goes_on_with_another_client() -> None:
    """The state of the run is stored as text; the files are those of the snapshot."""

    @function_tool(needs_approval=True)
    def ask() -> str:
        return "approved"

    def made(*calls: tuple[str, dict[str, Any]]) -> SandboxAgent[Any]:
        return SandboxAgent(
            name="worker", model=script(*calls), instructions="Work.", tools=[ask], capabilities=[Shell()]
        )

    config = RunConfig(sandbox=SandboxRunConfig(client=client()))
    first = await Runner.run(
        made(("exec_command", {"cmd": "echo before > a.txt"}), ("ask", {})), "Go.", run_config=config
    )
    assert 1 == len(first.interruptions)
    stored = first.to_state().to_json()

    agent = made(("exec_command", {"cmd": "cat a.txt"}))
    state = await RunState.from_json(agent, stored)
    state.approve(state.get_interruptions()[0])
    config = RunConfig(sandbox=SandboxRunConfig(client=client()))
    done = await Runner.run(agent, state, run_config=config)
    assert "before" in outputs(done)[-1]


async def test_python_beside_a_session_of_another_client_needs_a_runtime() -> None:
    agent = SandboxAgent(
        name="worker", model=script(), instructions="Work.", capabilities=[Shell(), PythonCapability()]
    )
    config = RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))
    with pytest.raises(UsageError, match=r"PythonCapability\.over"):
        await Runner.run(agent, "Work.", run_config=config)


async def test_many_sessions_at_once_have_jails_of_their_own() -> None:
    own = client()
    made = await asyncio.gather(*(own.create() for _ in range(3)))
    for number, one in enumerate(made):
        await one.start()
        await one.write(Path("mine"), io.BytesIO(str(number).encode()))
    assert ["0", "1", "2"] == [await shown(one, "cat mine") for one in made]
    assert 3 == len({id(runtime_of(one)) for one in made})
    await asyncio.gather(*(own.delete(one) for one in made))
    assert {} == own._own


@pytest.mark.parametrize("isolation", ["landlock", "none"])
async def test_other_levels_of_isolation_have_another_working_directory(
    isolation: Any, tmp_path: Path
) -> None:
    own = CenoteSandboxClient(sandbox=SandboxPolicy(isolation=isolation))
    made = await own.create(
        manifest=Manifest(root="/workspace/inner", entries={"a": File(content=b"a")}),
        snapshot=LocalSnapshotSpec(base_path=tmp_path),
    )
    async with made:
        assert "a" == await shown(made, "cat a")
        assert made.state.manifest.root.endswith("/workspace/inner")
    await own.delete(made)
    async with await own.resume(made.state) as again:
        assert "a" == await shown(again, "cat a")
    await own.delete(again)
