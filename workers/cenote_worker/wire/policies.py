"""A sandbox policy as a message and back."""

from __future__ import annotations

from cenote_proto.v1 import runtime_pb2
from cenote_security.environment import Environment
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.wire import option_messages


def from_policy(policy: SandboxPolicy) -> runtime_pb2.Policy:
    """Raises UsageError for what no message can hold."""
    if isinstance(policy.environment, Environment):
        raise UsageError(
            "a message names an environment that is built: build it with `cenote env build --address`, and name it: "
            "SandboxPolicy(environment='its-name')"
        )
    return option_messages.fill_options(runtime_pb2.Policy(), policy)


def without_secrets(message: runtime_pb2.Policy) -> runtime_pb2.Policy:
    """The same without credentials, safe to show."""
    shown = runtime_pb2.Policy()
    shown.CopyFrom(message)
    if shown.network.credentials:
        shown.network.ClearField("credentials")
    return shown


def take_secrets(message: runtime_pb2.Policy) -> bytes:
    """Removes its credentials, and returns them for `give_secrets`; nothing where there are none."""
    apart = runtime_pb2.Network()
    for host, credential in message.network.credentials.items():
        apart.credentials[host].CopyFrom(credential)
    if apart.credentials:
        message.network.ClearField("credentials")
    return apart.SerializeToString(deterministic=True)


def give_secrets(message: runtime_pb2.Policy, secrets: bytes) -> None:
    """Adds what was taken."""
    message.network.MergeFrom(runtime_pb2.Network.FromString(secrets))


def to_policy(message: runtime_pb2.Policy) -> SandboxPolicy:
    """Raises UsageError for an invalid policy: the message is not trusted."""
    return option_messages.read_options(SandboxPolicy, message)


def to_requested_policy(message: runtime_pb2.Policy) -> SandboxPolicy:
    """The policy of a request. Unset fields get the default, where zero or empty is not a valid value.

    Raises UsageError with all errors.
    """
    return option_messages.read_options(SandboxPolicy, message, as_asked=True)
