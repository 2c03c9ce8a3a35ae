"""Where a server of runtimes is reached, and its TLS: mutual for the platform's components, one-sided for clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import grpc

from cenote_security.auth.certificates import TlsMaterial


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Addresses, as `host:port`.

    components: for processes of the platform, which show a certificate where the server is secured. clients: for
    whoever holds a capability: the same one where it is not secured, and empty where components alone may come.
    """

    components: str
    clients: str


Material = Callable[[], TlsMaterial]
"""What a server shows and trusts, as it is now: asked at each handshake, so it is renewed without a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """How a server is secured. clients: whether it has a door for clients too, who have no certificates."""

    material: Material
    clients: bool


def for_components(material: Material) -> grpc.ServerCredentials:
    """Whoever comes shows a certificate of the same authority that is one for clients, or there is no handshake."""
    return _credentials(material, mutual=True)


def for_clients(material: Material) -> grpc.ServerCredentials:
    """Whoever comes is asked for a capability alone."""
    return _credentials(material, mutual=False)


def _credentials(material: Material, *, mutual: bool) -> grpc.ServerCredentials:
    shown = material()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        former, shown = shown, material()
        return None if former == shown else _configuration(shown)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(shown),
        renewed,  # type: ignore[arg-type]  # gRPC takes None for "as before", its stubs do not know
        require_client_authentication=mutual,
    )


def _configuration(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    pair = (material.own.key, material.own.certificate)
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=material.authority or None)
