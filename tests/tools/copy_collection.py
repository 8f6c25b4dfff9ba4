# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy the files git knows (tracked, or new and not ignored) to DIRECTORY/ansible_collections/graceful/azure.

Ansible finds a collection by that path alone, whatever the checkout is called. A copy, not a link: a link inside the
checkout would lead tools that follow it in circles.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def known_files() -> set[Path]:
    listing = subprocess.check_output(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    )
    names = {Path(os.fsdecode(name)) for name in listing.split(b"\0") if name}
    return {name for name in names if os.path.lexists(ROOT / name) and not (ROOT / name).is_dir()}


def same(source: Path, copy: Path) -> bool:
    if copy.is_symlink() or source.is_symlink():
        return copy.is_symlink() and source.is_symlink() and copy.readlink() == source.readlink()
    return copy.is_file() and source.stat().st_mode == copy.stat().st_mode and filecmp.cmp(source, copy, shallow=False)


def remove_what_left(destination: Path, wanted: set[Path]) -> None:
    for directory, _directories, files in os.walk(destination, topdown=False):
        for name in files:
            file = Path(directory, name)
            if file.relative_to(destination) not in wanted:
                file.unlink()
        if not any(Path(directory).iterdir()):
            Path(directory).rmdir()


def copy_collection(directory: Path) -> None:
    destination = directory / "ansible_collections" / "graceful" / "azure"
    wanted = known_files()
    remove_what_left(destination, wanted)
    for name in sorted(wanted):
        if not same(ROOT / name, destination / name):
            (destination / name).parent.mkdir(parents=True, exist_ok=True)
            (destination / name).unlink(missing_ok=True)
            shutil.copy2(ROOT / name, destination / name, follow_symlinks=False)


if __name__ == "__main__":
    copy_collection(Path(sys.argv[1]))
