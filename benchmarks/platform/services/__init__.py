"""The services, each imported only in the process that drives it."""

from __future__ import annotations

from importlib import import_module

from benchmarks.platform.service import AnyService

SERVICES: dict[str, str] = {
    "cenote": "benchmarks.platform.services.cenote_platform:CenotePlatform",
    "ray actors": "benchmarks.platform.services.ray_actors:RayActors",
    "cloudpickle over gRPC": "benchmarks.platform.services.plain_grpc:CloudpickleOverGrpc",
    "json over gRPC": "benchmarks.platform.services.plain_grpc:JsonOverGrpc",
    "kernel gateway": "benchmarks.platform.services.kernel_gateway:KernelGateway",
}
"""Name in the report -> location of its class. The first one is the reference."""


def start_service(name: str) -> AnyService:
    """Raises ImportError when its library is not installed."""
    module_name, _, class_name = SERVICES[name].partition(":")
    service: AnyService = getattr(import_module(module_name), class_name)()
    return service
