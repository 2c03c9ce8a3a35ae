"""Jails as a sandbox provider of NeMo Gym."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cenote import SandboxPolicy

pytest.importorskip("nemo_gym", reason="needs nemo-gym: `make test-peers` has it")

from nemo_gym.sandbox.api import AsyncSandbox
from nemo_gym.sandbox.providers import SandboxCreateError, SandboxSpec, SandboxStatus, register_provider

from cenote.adapters.nemo_gym import CenoteJailProvider
from cenote_security.errors import UsageError

register_provider("cenote", CenoteJailProvider, override=True)


@pytest.fixture
async def sandbox() -> AsyncIterator[Any]:
    """By NeMo Gym's own class, from a configuration."""
    spec = SandboxSpec(env={"MARK": "set"}, files={"in.txt": "given"}, resources={"memory_mib": 512})
    sandbox = AsyncSandbox({"cenote": {}}, spec)
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


async def test_commands_and_files(sandbox: Any, tmp_path: Path) -> None:
    """Commands have the environment of the specification, files go in and out."""
    ended = await sandbox.exec("echo $MARK; cat in.txt; echo oops >&2; exit 3")
    assert ("set\ngiven", "oops\n", 3, None) == (
        ended.stdout,
        ended.stderr,
        ended.return_code,
        ended.error_type,
    )
    assert "/tmp\n" == (await sandbox.exec("pwd", cwd="/tmp")).stdout
    (tmp_path / "up").write_bytes(b"\0\1")
    await sandbox.upload(tmp_path / "up", "sub/there")
    await sandbox.download("sub/there", tmp_path / "down")
    assert b"\0\1" == (tmp_path / "down").read_bytes()


async def test_what_the_sandbox_ends(sandbox: Any) -> None:
    """It is told from an exit code of the command; the sandbox goes on."""
    late = await sandbox.exec("sleep 60", timeout_s=0.5)
    assert (125, "timeout") == (late.return_code, late.error_type)
    killed = await sandbox.exec("kill -9 $$")
    assert (137, None) == (killed.return_code, killed.error_type)
    other = await sandbox.exec("true", user="root")
    assert (125, "sandbox") == (other.return_code, other.error_type)
    assert 0 == (await sandbox.exec("true")).return_code


async def test_a_namespace_beside_the_commands() -> None:
    """The handle has the runtime; its life is that of the sandbox."""
    provider = CenoteJailProvider(memory="512MiB")
    handle = await provider.create(SandboxSpec())
    await handle.raw.execute("open('x', 'w').write('1'); kept = 5")
    assert "1" == (await provider.exec(handle, "cat x")).stdout
    assert "5" == (await handle.raw.execute("kept")).value
    assert SandboxStatus.RUNNING is await provider.status(handle)
    await provider.close(handle)
    await provider.close(handle)
    assert SandboxStatus.STOPPED is await provider.status(handle)
    assert "sandbox" == (await provider.exec(handle, "true")).error_type


async def test_policies() -> None:
    """The provider's fields, then the resources of a specification, then its own options."""
    provider = CenoteJailProvider(memory="256MiB", env={"A": "1", "B": "1"})
    options = {"processes": 20}
    spec = SandboxSpec(
        resources={"memory_mib": 300, "cpu": 0.5}, env={"B": "2"}, ttl_s=600, provider_options=options
    )
    wanted = SandboxPolicy(
        memory="300MiB", cpus=0.5, env={"A": "1", "B": "2"}, runtime_timeout=600, processes=20
    )
    assert wanted == provider._policy_of(spec)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (SandboxSpec(image="python:3.12"), "a jail has no image"),
        (SandboxSpec(entrypoint=["sh"]), "no entry point"),
        (SandboxSpec(resources={"gpu": 1}), "no GPU"),
        (SandboxSpec(provider_options={"memory": "nonsense"}), "memory"),
        (SandboxSpec(provider_options={"colour": "red"}), "no fields of SandboxPolicy"),
    ],
)
async def test_specifications_that_are_refused(spec: SandboxSpec, said: str) -> None:
    """Nothing is started in another way than was asked for."""
    with pytest.raises(SandboxCreateError, match=said):
        await CenoteJailProvider().create(spec)


def test_a_configuration_that_is_refused() -> None:
    with pytest.raises(UsageError, match="no fields of SandboxPolicy"):
        CenoteJailProvider(colour="red")
