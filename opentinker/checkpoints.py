"""Checkpoints that count only when whole: a manifest with hashes, written last and synced, then one rename.

    checkpoints/.partial-step-000020/   while it is being written
    checkpoints/step-000020/            policies/NAME/…  state.json  manifest.json

Whatever the instant at which the process dies, a folder `step-*` either verifies or is passed over for the one before.
What newer versions wrote is never passed over: it may be sound.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentinker.errors import CheckpointError

log = logging.getLogger(__name__)

FORMAT = 1
MANIFEST = "manifest.json"
STATE = "state.json"

_STEP = re.compile(r"step-([0-9]{6}|[1-9][0-9]{6,})")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified checkpoint."""

    step: int
    folder: Path
    state: Mapping[str, Any]
    """The run's own state: schedules, baselines, iterate average, clock, scheduler epoch."""

    def policy_folder(self, name: str) -> Path:
        """Where a policy's weights, average and optimiser lie."""
        return self.folder / "policies" / name


class CheckpointStore:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, state: Mapping[str, Any], write_policies: Callable[[Path], None]) -> Path:
        """Writes a checkpoint and makes it count.

        Args:
            step: the step it belongs to, 0 or more; a folder of that step is replaced.
            state: JSON-able; floats survive exactly.
            write_policies: writes one folder per policy below the folder it is given.

        Returns:
            The checkpoint's folder.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        final = self._folder_of(step)
        partial = self.folder / f".partial-{final.name}"
        self.sweep()
        (partial / "policies").mkdir(parents=True)
        write_policies(partial / "policies")
        (partial / STATE).write_text(json.dumps(state, allow_nan=True), encoding="utf-8")
        files = {name: _fingerprint(partial / name, sync=True) for name in _files_below(partial)}
        for folder in (path for path in partial.rglob("*") if path.is_dir()):
            _sync(folder)
        manifest = {"format": FORMAT, "step": step, "files": files}
        write_synced(partial / MANIFEST, json.dumps(manifest, indent=1))
        _sync(partial)
        if final.exists():
            os.rename(final, self.folder / f".partial-replaced-{final.name}")
        os.rename(partial, final)
        _sync(self.folder)
        self.sweep()
        return final

    def steps(self) -> list[int]:
        """Steps that have a folder, whole or not, ascending."""
        if not self.folder.is_dir():
            return []
        found = [_STEP.fullmatch(entry.name) for entry in self.folder.iterdir() if entry.is_dir()]
        return sorted(int(match[1]) for match in found if match)

    def load(self, step: int) -> Checkpoint:
        """A verified checkpoint.

        Raises:
            CheckpointError: it is missing, torn, altered or of another format; the message says which file.
        """
        folder = self._folder_of(step)
        try:
            _verify(folder, step)
            state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        except OSError as error:
            raise CheckpointError(f"{folder} cannot be read: {error}") from error
        return Checkpoint(step, folder, state)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that verifies, None where none was ever saved; those passed over are logged as warnings.

        Raises:
            CheckpointError: there are checkpoints and none verifies, or a newer version wrote one.
        """
        steps = self.steps()
        for step in reversed(steps):
            try:
                return self.load(step)
            except _NewerFormat:
                raise
            except CheckpointError as error:
                log.warning("passing over a checkpoint that cannot be used: %s", error)
        if steps:
            raise CheckpointError(
                f"none of the checkpoints of steps {steps} in {self.folder} can be used (see the warnings); "
                "restore one, or start another run with name=…"
            )
        return None

    def rewind(self, step: int) -> None:
        """Removes the checkpoints after a step, so that none of another past is ever taken for this run's."""
        for later in self.steps():
            if later > step:
                _remove(self._folder_of(later))
        self.sweep()

    def sweep(self) -> None:
        """Removes what an interrupted save left behind."""
        if self.folder.is_dir():
            for entry in self.folder.glob(".partial-*"):
                _remove(entry)

    def _folder_of(self, step: int) -> Path:
        if step < 0:
            raise ValueError(f"a checkpoint belongs to step 0 or later, not {step}")
        return self.folder / f"step-{step:06d}"


class _NewerFormat(CheckpointError):
    """Sound, as far as this version can tell."""


def write_synced(path: Path, text: str) -> None:
    """Replaces a file's text so that it is either the old or the new one, also after a power cut."""
    scratch = path.with_name(f".{path.name}.partial")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)
    _sync(path.parent)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} has no readable manifest: {error}") from error
    given = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
    if isinstance(given, int) and given > FORMAT:
        raise _NewerFormat(f"{folder} has format {given}, this version reads format {FORMAT}; go on with the newer version")
    if not isinstance(manifest, dict) or given != FORMAT or not isinstance(manifest.get("files"), dict):
        raise CheckpointError(f"{folder} has format {given!r} or no list of files; this version reads format {FORMAT}")
    return manifest


def _verify(folder: Path, step: int) -> None:
    present = set(_files_below(folder))  # first: nothing but files is opened
    manifest = _read_manifest(folder)
    if manifest.get("step") != step:
        raise CheckpointError(f"{folder}: its manifest says step {manifest.get('step')!r}")
    files: dict[str, Any] = manifest["files"]
    expected = {*files, MANIFEST}
    if STATE not in files:
        raise CheckpointError(f"{folder}: its manifest does not list {STATE}")
    if present != expected:
        raise CheckpointError(
            f"{folder}: missing files {sorted(expected - present)}, unknown files {sorted(present - expected)}"
        )
    for name, fingerprint in files.items():
        if _fingerprint(folder / name) != fingerprint:
            raise CheckpointError(f"{folder / name} is not what was saved (size or SHA-256 differs)")


def _files_below(folder: Path) -> list[str]:
    """Relative names of everything but folders.

    Raises:
        CheckpointError: something is neither a file nor a folder. A link's content may change after it was looked at.
    """
    names = []
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        if not stat.S_ISDIR(mode):
            if not stat.S_ISREG(mode):
                raise CheckpointError(f"{path} is a link or a device; a checkpoint consists of files")
            names.append(path.relative_to(folder).as_posix())
    return sorted(names)


def _fingerprint(path: Path, sync: bool = False) -> dict[str, Any]:
    with path.open("rb") as file:
        if sync:
            os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"sha256": digest, "bytes": path.stat().st_size}


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
