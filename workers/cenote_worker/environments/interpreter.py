"""The Python of a built environment, as its zygote and its jails have it."""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import replace

from cenote_security.errors import UnavailableError
from cenote_security.walls.interpreter import Interpreter, describe
from cenote_worker.environments.building import check_unchanged
from cenote_worker.environments.store import BuiltEnvironment, EnvironmentStore
from cenote_worker.environments.worker_packages import worker_folder


def interpreter_of(built: BuiltEnvironment, kept: EnvironmentStore) -> Interpreter:
    """The standard library, what the worker needs, then the packages of the environment, and nothing else.

    The first two come first, so that no package can stand in for a module of a zygote: that starts outside the walls.
    Raises UnfitEnvironmentError, UnavailableError.
    """
    check_unchanged(built, kept)
    try:
        worker, targets = worker_folder(kept.root)
    except OSError as error:
        raise UnavailableError(f"what jails of environments need cannot be written: {error}") from error
    own = (sysconfig.get_path("stdlib"), sysconfig.get_config_var("DESTSHARED"), str(worker))
    prefixes = (built.venv, sys.base_prefix, sys.base_exec_prefix)
    found = describe(f"{built.venv}/bin/python", (), prefixes)
    return replace(
        found,
        search=(*own, built.site),
        outside=own,
        visible=tuple(dict.fromkeys((*found.visible, str(worker), *targets))),
        prefix=built.venv,
    )
