"""The sandboxes, each imported only when it takes part: a rival may not be installed."""

from __future__ import annotations

from importlib import import_module

from benchmarks.jail.sandbox import DoesNotRunHereError, Sandbox

SANDBOXES: dict[str, str] = {
    "no sandbox": "benchmarks.jail.sandboxes.piped:NoSandbox",
    "cenote none": "benchmarks.jail.sandboxes.cenote_levels:CenoteNone",
    "cenote landlock": "benchmarks.jail.sandboxes.cenote_levels:CenoteLandlock",
    "cenote strict": "benchmarks.jail.sandboxes.cenote_levels:CenoteStrict",
    "bubblewrap": "benchmarks.jail.sandboxes.bubblewrap:Bubblewrap",
    "sandlock": "benchmarks.jail.sandboxes.sandlock_process:Sandlock",
    "gvisor": "benchmarks.jail.sandboxes.gvisor:Gvisor",
}
"""Name in the report -> location of its class."""


def load_sandbox(name: str) -> type[Sandbox]:
    """Raises DoesNotRunHereError when its library is not installed."""
    module_name, _, class_name = SANDBOXES[name].partition(":")
    try:
        kind: type[Sandbox] = getattr(import_module(module_name), class_name)
    except ImportError as error:
        raise DoesNotRunHereError(str(error)) from error
    return kind
