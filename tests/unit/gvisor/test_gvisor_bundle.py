"""The configuration of runsc: the minimum that a jail needs, in the terms of the OCI specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cenote_security.policy import Mount, SandboxPolicy
from cenote_security.walls.levels import gvisor_level
from cenote_security.walls.root import WRITABLE_FOLDERS

MOUNTS = (Mount(source="/data", target="/in"), Mount(source="/out", writable=True))


def config(**changes: Any) -> Any:
    policy = SandboxPolicy(**changes.pop("policy", {}))
    wanted: dict[str, Any] = {"environment": {"A": "b=c"}, "mounts": MOUNTS} | changes
    return gvisor_level.bundle_config(policy, ["python", "-c", "pass"], **wanted)


def options(bundle: Any, target: str) -> list[str]:
    return next(set_["options"] for set_ in bundle["mounts"] if set_["destination"] == target)


def absolute(value: object) -> bool:
    return isinstance(value, str) and value.startswith("/")


def texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


REQUIRED: dict[str, Callable[[Any], bool]] = {
    "ociVersion": lambda it: it["ociVersion"].count(".") == 2,
    "process.cwd": lambda it: absolute(it["process"]["cwd"]),
    "process.args": lambda it: texts(it["process"]["args"]) and it["process"]["args"] != [],
    "process.env": lambda it: texts(it["process"]["env"]) and all("=" in one for one in it["process"]["env"]),
    "process.user": lambda it: {"uid", "gid"} == it["process"]["user"].keys(),
    "root.path": lambda it: absolute(it["root"]["path"]),
    "mounts.destination": lambda it: all(absolute(one["destination"]) for one in it["mounts"]),
    "mounts.source": lambda it: all(absolute(one["source"]) for one in it["mounts"] if one["type"] == "bind"),
    "linux.namespaces": lambda it: all(one.keys() == {"type"} for one in it["linux"]["namespaces"]),
}
"""The requirements of config.md and config-linux.md of the specification, by field."""


@pytest.mark.parametrize("field", REQUIRED)
def test_the_specification_is_kept(field: str) -> None:
    """Each required field is present and of the required type."""
    assert REQUIRED[field](config())


def test_nothing_can_be_gained_inside() -> None:
    """No capability in any set, no new privileges, no terminal, every namespace that runsc knows by name."""
    process = config()["process"]
    kinds = {namespace["type"] for namespace in config()["linux"]["namespaces"]}
    assert (True, False) == (process["noNewPrivileges"], process["terminal"])
    assert not any(process["capabilities"].values())
    assert {"pid", "network", "ipc", "uts", "mount"} == kinds
    assert {"bounding", "effective", "inheritable", "permitted", "ambient"} == process["capabilities"].keys()


def test_every_folder_that_may_be_written_is_named() -> None:
    """For each unnamed folder, runsc would make its own memory disk, without a limit."""
    targets = {mount["destination"] for mount in config()["mounts"]}
    assert {*WRITABLE_FOLDERS, "/in", "/out", "/proc"} == targets


def test_mounts_are_as_the_policy_says() -> None:
    """Read-only unless writable, and under their own path, where the outer namespaces put them."""
    bundle = config()
    assert ("ro", "rw") == (options(bundle, "/in")[0], options(bundle, "/out")[0])
    assert "/in" == next(mount["source"] for mount in bundle["mounts"] if mount["destination"] == "/in")


def test_noexec_is_for_what_can_be_written() -> None:
    """The jail's folders and writable mounts; programs in read-only mounts can still run."""
    bundle = config(policy={"noexec": True})
    locked = {mount["destination"] for mount in bundle["mounts"] if "noexec" in mount.get("options", [])}
    assert {*WRITABLE_FOLDERS, "/out"} == locked
    assert not [mount for mount in config()["mounts"] if "noexec" in mount.get("options", [])]


@pytest.mark.parametrize(("version", "told"), [(20221219, False), (20240729, True), (0, False)])
def test_only_a_release_that_knows_the_flag_gets_it(version: int, told: bool) -> None:
    """Debian 12's runsc has no overlay and no flag for it; Debian 13's puts one over the root by default."""
    command = gvisor_level.runsc_command("/usr/bin/runsc", version, "/bundle")
    assert told == ("--overlay2=none" in command)
    assert {"--rootless", "--network=none", "--bundle=/bundle", "--root=/bundle/state"} < set(command)
