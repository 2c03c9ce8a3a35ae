"""Making the interpreter reachable for an unprivileged user when it lies below a folder that only root may enter.

A Python below `/root` is common where everything runs as root. With a private root its folders are shown at their
places; without one, root can still lay an empty folder over the closed one, in a mount namespace of the zygote's own,
with nothing in it but what a jail needs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from cenote_security.walls import libc_unsafe as libc
from cenote_security.walls.wall import building

_READ_ONLY: Final = libc.MOUNT_ATTR_RDONLY | libc.MOUNT_ATTR_NOSUID | libc.MOUNT_ATTR_NODEV


def closed_folders(paths: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """`{folder that others may not enter: the paths below it}`, for absolute paths. Outermost folder each."""
    found: dict[str, list[str]] = {}
    for path in paths:
        closed = next((str(parent) for parent in reversed(Path(path).parents) if _is_closed(parent)), None)
        if closed is not None and os.path.lexists(path):
            found.setdefault(closed, []).append(path)
    return {folder: tuple(inside) for folder, inside in found.items()}


def _is_closed(folder: Path) -> bool:
    try:
        return not folder.stat().st_mode & stat.S_IXOTH
    except FileNotFoundError:
        return False


def open_up(paths: Iterable[str]) -> None:
    """Make `paths` reachable for any user, in a mount namespace of this process's own. Does nothing if they are.

    Needs root with CAP_SYS_ADMIN, when there is something to do. Raises WallError.
    """
    closed = closed_folders(paths)
    if not closed:
        return
    with building(
        f"let an unprivileged user reach Python below {', '.join(closed)}, which only root may enter,"
    ):
        libc.unshare(libc.CLONE_NEWNS)
        libc.mount("none", "/", None, libc.MS_REC | libc.MS_PRIVATE)
        for folder, inside in closed.items():
            _show_only(folder, inside)


def _show_only(folder: str, inside: tuple[str, ...]) -> None:
    links = {path: str(Path(path).readlink()) for path in inside if Path(path).is_symlink()}
    trees = {path: (libc.open_tree(path), Path(path).is_dir()) for path in inside if path not in links}
    libc.mount("tmpfs", folder, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=0755,size=1m")
    for path, target in links.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).symlink_to(target)
    for path, (tree, is_folder) in trees.items():
        (Path(path) if is_folder else Path(path).parent).mkdir(parents=True, exist_ok=True)
        if not is_folder:
            Path(path).touch()
        libc.move_mount(tree, path)
        os.close(tree)
    libc.mount_setattr(folder, _READ_ONLY)
