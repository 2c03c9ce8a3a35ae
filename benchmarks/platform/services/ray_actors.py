"""Plain Ray: an actor holds the namespace and runs cells with `exec`; values pass as ObjectRefs."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from functools import partial
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, ClassVar

os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # before the import, which reads it
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tests.waiting import until

from benchmarks.platform.service import Namespace, Service
from benchmarks.platform.services.ray_machine import STORE, RayMachine


class Holder:
    """Runs in the actor's process."""

    def __init__(self) -> None:
        self._namespace: dict[str, object] = {"__name__": "__main__"}

    def execute(self, code: str) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "<cell>", "exec"), self._namespace)
        return printed.getvalue()

    def put(self, name: str) -> list[ray.ObjectRef[object]]:
        """In a list, since a reference returned by itself would be replaced by its value."""
        return [ray.put(self._namespace[name])]

    def get(self, name: str, parcel: list[ray.ObjectRef[object]]) -> None:
        self._namespace[name] = ray.get(parcel[0])


class ActorNamespace(Namespace):
    def __init__(self, actor: Any) -> None:  # Any: Ray's handles have the methods of the object they refer to
        self._actor = actor

    def execute(self, code: str) -> str:
        printed: str = ray.get(self._actor.execute.remote(code))
        return printed

    def share(self, name: str) -> object:
        parcel: object = ray.get(self._actor.put.remote(name))
        return parcel

    def receive(self, name: str, parcel: object) -> None:
        ray.get(self._actor.get.remote(name, parcel))

    def close(self) -> None:
        ray.kill(self._actor)


class RayActors(Service[ActorNamespace]):
    """A cluster of this process."""

    cheap: ClassVar[bool] = False

    def __init__(self) -> None:
        self._folder = mkdtemp(prefix="cb-ray-")
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=STORE,
            _temp_dir=self._folder,
        )
        self._kind = ray.remote(num_cpus=0)(Holder)

    def open(self) -> ActorNamespace:
        return ActorNamespace(self._kind.remote())

    @contextlib.contextmanager
    def apart(self) -> Iterator[tuple[Callable[[], ActorNamespace], Callable[[], ActorNamespace]]]:
        here = ray.get_runtime_context()
        second = RayMachine(here.gcs_address)
        try:
            (far,) = _machines() - {here.get_node_id()}
            yield partial(self._on, here.get_node_id()), partial(self._on, far)
        finally:
            second.end()
            until(lambda: _machines() == {here.get_node_id()})  # no actor is placed there any more

    def _on(self, node: str) -> ActorNamespace:
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        return ActorNamespace(self._kind.options(scheduling_strategy=there).remote())

    def close(self) -> None:
        ray.shutdown()
        rmtree(self._folder, ignore_errors=True)


def _machines() -> set[str]:
    """The machines that Ray considers alive."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"] for node in nodes if node["Alive"]}
