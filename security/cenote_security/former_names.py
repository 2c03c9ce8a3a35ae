"""Modules by the names that they had in earlier versions: pickles, settings and scripts that users have stored name
them.

Every later version reads a checkpoint, a journal and a pickled option. Nothing else imports a former name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

MOVED: Final[Mapping[str, str]] = {
    "cenote.cli.data_files": "cenote.cli.local.data_files",
    "cenote.gateway.options": "cenote.gateway.process.options",
    "cenote.gateway.quota": "cenote.gateway.values.quota",
    "cenote.gateway.state_folder": "cenote.gateway.store.state_folder",
    "cenote.runtime.remote.kept": "cenote.runtime.core.backend",
    "cenote_worker.classes_by_value_unsafe": "cenote_worker.pickling.classes_unsafe",
    "cenote_worker.code_versions": "cenote_worker.pickling.code_objects",
    "cenote_worker.in_jail": "cenote_worker.jail",
    "cenote_worker.in_jail.array_views": "cenote_worker.jail.libraries.numpy_views",
    "cenote_worker.in_jail.cached_functions": "cenote_worker.jail.values.pickle_reducers",
    "cenote_worker.in_jail.carrying": "cenote_worker.jail.state",
    "cenote_worker.in_jail.carrying.hidden_states": "cenote_worker.jail.state.ambient_transfer",
    "cenote_worker.in_jail.carrying.library_state": "cenote_worker.jail.state.library_changes",
    "cenote_worker.in_jail.carrying.set_recipes": "cenote_worker.jail.state.set_layout",
    "cenote_worker.in_jail.carrying.shared_axes": "cenote_worker.jail.libraries.pandas_indexes",
    "cenote_worker.in_jail.checkpointing_unsafe": "cenote_worker.jail.state.pickles_unsafe",
    "cenote_worker.in_jail.compiled_schemas": "cenote_worker.jail.libraries.pydantic_schemas",
    "cenote_worker.in_jail.exceptions_kept": "cenote_worker.jail.values.instance_pickles",
    "cenote_worker.in_jail.figure_backend": "cenote_worker.jail.libraries.matplotlib_backend",
    "cenote_worker.in_jail.hosts_channel": "cenote_worker.jail.values.host_channel",
    "cenote_worker.in_jail.hosts_stubs": "cenote_worker.jail.values.host_stubs",
    "cenote_worker.in_jail.instances_kept": "cenote_worker.jail.values.instance_pickles",
    "cenote_worker.in_jail.ipython": "cenote_worker.jail.cells.ipython",
    "cenote_worker.in_jail.leftovers": "cenote_worker.jail.values.pickle_reducers",
    "cenote_worker.in_jail.names_together_unsafe": "cenote_worker.jail.state.branch_merge_unsafe",
    "cenote_worker.in_jail.own_objects": "cenote_worker.jail.values.instance_pickles",
    "cenote_worker.in_jail.records": "cenote_worker.jail.values.records",
    "cenote_worker.in_jail.rows": "cenote_worker.jail.values.pickle_reducers",
    "cenote_worker.in_jail.shared_names": "cenote_worker.jail.process.authors",
    "cenote_worker.in_jail.skill_files": "cenote_worker.jail.workdir.skill_files",
    "cenote_worker.in_jail.spawned_unsafe": "cenote_worker.jail.cells.subprocesses_unsafe",
    "cenote_worker.in_jail.stale_keys_unsafe": "cenote_worker.jail.state.stale_keys_unsafe",
    "cenote_worker.in_jail.transfer_unsafe": "cenote_worker.jail.values.value_pickles_unsafe",
    "cenote_worker.in_jail.value_forms": "cenote_worker.jail.values.value_forms",
    "cenote_worker.job_rules": "cenote.gateway.jobs.rules",
    "cenote_worker.late_types_unsafe": "cenote_worker.pickling.classes_unsafe",
    "cenote_worker.results": "cenote_worker.execution.results",
    "cenote_worker.retention": "cenote_worker.checkpoints.retention",
    "cenote_worker.tensors_unsafe": "cenote_worker.pickling.tensors_unsafe",
}
"""Former name -> name, of modules of which pickles or scripts name functions or classes, and of their packages."""


class FormerNames:
    """A finder for `sys.meta_path`, the last one: a former name gives the module itself, not a second one."""

    @classmethod
    def find_spec(cls, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, cls) if name in MOVED else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(_: ModuleSpec) -> ModuleType | None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """The import system gives what stands in `sys.modules` afterwards."""
        sys.modules[module.__name__] = importlib.import_module(MOVED[module.__name__])


def find_former_names() -> None:
    """Makes former names importable in this process."""
    if FormerNames not in sys.meta_path:
        sys.meta_path.append(FormerNames)
