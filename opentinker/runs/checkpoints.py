"""Checkpoints that count only when whole: a manifest with hashes, written last and synced, then one rename.

    checkpoints/.partial-step-000020/   while it is being written
    checkpoints/step-000020/            policies/NAME/…  state.json  manifest.json

Whatever the instant at which the process dies, a folder `step-*` either verifies or is passed over for the one before.
Passed over is only what is certainly torn: a file of its manifest is missing or is not what was saved. What may be sound
(unreadable at the moment, of a newer version, with files among its policies that nobody saved) stops the run instead. And
nothing is deleted: a folder that was passed over is set aside as `.rejected-step-000020` and never looked at again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

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

        Raises:
            CheckpointError: it could not be written (no space, no right, ...); the checkpoints before are untouched.
        """
        final = self._folder_of(step)
        try:
            self._write(final, step, state, write_policies)
        except Exception as error:
            room = no_room(error, self.folder, self._bytes_of_one())
            self._undo(final)
            # tokenizers raises a bare Exception where a file cannot be written
            if isinstance(error, (OSError, SafetensorError)) or type(error) is Exception:
                raise CheckpointError(
                    f"cannot save step {step} in {final}: {error}{room}; the last good checkpoint is kept"
                ) from error
            raise
        return final

    def _write(self, final: Path, step: int, state: Mapping[str, Any], write_policies: Callable[[Path], None]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f".partial-{final.name}"
        self.sweep()
        (partial / "policies").mkdir(parents=True)
        write_policies(partial / "policies")
        (partial / STATE).write_text(json.dumps(state, allow_nan=True), encoding="utf-8")
        share(partial)
        files = {name: _fingerprint(partial / name, sync=True) for name in _only_files(partial)}
        for folder in (path for path in partial.rglob("*") if path.is_dir()):
            _sync(folder)
        manifest = {"format": FORMAT, "step": step, "files": files}
        write_synced(partial / MANIFEST, json.dumps(manifest, indent=1))
        _sync(partial)
        if final.exists():
            os.rename(final, self._replaced(final))
        os.rename(partial, final)
        _sync(self.folder)
        self.sweep()

    def _undo(self, final: Path) -> None:
        """After a failed save: the folder that was to be replaced is back, and the space is free again where possible."""
        try:
            if self._replaced(final).exists() and not final.exists():
                os.rename(self._replaced(final), final)
            self.sweep()
        except OSError as error:
            log.warning("cannot remove what a failed save left in %s: %s", self.folder, error)

    def _bytes_of_one(self) -> int:
        """What the newest checkpoint took; 0 where there is none."""
        with contextlib.suppress(OSError, CheckpointError):
            for step in reversed(self.steps()):
                return sum(file["bytes"] for file in _read_manifest(self._folder_of(step))["files"].values())
        return 0

    def _replaced(self, final: Path) -> Path:
        return self.folder / f".partial-replaced-{final.name}"

    def steps(self) -> list[int]:
        """Steps that have a folder, whole or not, ascending.

        Raises:
            CheckpointError: the folder cannot be read.
        """
        try:
            entries = [entry.name for entry in self.folder.iterdir() if entry.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(f"{self.folder} cannot be read: {error}") from error
        return sorted(int(match[1]) for match in map(_STEP.fullmatch, entries) if match)

    def holds_nothing(self) -> bool:
        """Whether there is no checkpoint of any kind, also none that was set aside.

        Raises:
            CheckpointError: as `steps`.
        """
        return not self.steps() and not any(self.folder.glob(".rejected-*"))

    def load(self, step: int) -> Checkpoint:
        """A verified checkpoint.

        Raises:
            CheckpointError: it is missing, torn, altered, unreadable or of another format, or holds files among its
                policies that nobody saved; the message says which file.
        """
        folder = self._folder_of(step)
        try:
            _verify(folder, step)
            state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise CheckpointError(f"{folder} is not whole: {error}") from error
        except OSError as error:
            raise _MaybeSound(f"{folder} cannot be read: {error}; resume when it can, or move it elsewhere") from error
        return Checkpoint(step, folder, state)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that verifies, None where none was ever saved; those passed over are logged as warnings.

        Raises:
            CheckpointError: there are checkpoints and none verifies, or one newer than all that verify may be sound.
        """
        steps = self.steps()
        for step in reversed(steps):
            try:
                return self.load(step)
            except _MaybeSound:
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
        """Sets the checkpoints after a step aside, so that none of another past is ever taken for this run's."""
        for later in self.steps():
            if later > step:
                folder = self._folder_of(later)
                aside = _free(folder.with_name(f".rejected-{folder.name}"))
                os.rename(folder, aside)
                log.warning("%s is set aside as %s; delete it when you do not need it", folder, aside.name)
        if self.folder.is_dir():
            _sync(self.folder)
        self.sweep()

    def prune(self, keep: Collection[int]) -> None:
        """Deletes the checkpoints of all other steps. A folder vanishes with one rename: it is never seen half deleted.

        What cannot be deleted is logged and stays.
        """
        for step in self.steps():
            if step not in keep:
                folder = self._folder_of(step)
                dropped = _free(folder.with_name(f".partial-dropped-{folder.name}"))
                try:
                    os.rename(folder, dropped)
                    _remove(dropped)
                except OSError as error:
                    log.warning("cannot delete the checkpoint %s, which is no longer kept: %s", folder, error)

    def sweep(self) -> None:
        """Removes what an interrupted save left behind."""
        if self.folder.is_dir():
            for entry in self.folder.glob(".partial-*"):
                _remove(entry)

    def _folder_of(self, step: int) -> Path:
        if step < 0:
            raise ValueError(f"a checkpoint belongs to step 0 or later, not {step}")
        return self.folder / f"step-{step:06d}"


class _MaybeSound(CheckpointError):
    """Nothing says that it is torn: it is not passed over."""


def share(folder: Path) -> None:
    """Gives every file below a folder the rights that a new one has here; safetensors writes for its owner alone."""
    rights = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(rights)


def write_synced(path: Path, text: str) -> None:
    """Replaces a file's text so that it is either the old or the new one, also after a power cut."""
    scratch = path.with_name(f".{path.name}.partial")
    try:
        with scratch.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise
    _sync(path.parent)


def no_room(error: BaseException, folder: Path, needed: int = 0) -> str:
    """Where an error says that there is no space: which file system, how much is free there and how much is needed."""
    code = getattr(error, "errno", None)
    # safetensors and tokenizers, written in Rust, have the number in their text
    if code not in (errno.ENOSPC, errno.EDQUOT) and not re.search(r"os error (28|122)\b", str(error)):
        return ""
    try:
        place = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.is_mount())
        free = shutil.disk_usage(place).free
    except (OSError, StopIteration):
        return ""
    need = f", the last checkpoint took {megabytes(needed)}" if needed else ""
    return f" (file system {place}: {megabytes(free)} free{need})"


def megabytes(size: int) -> str:
    """A size for people: 1 MB = 10**6 bytes."""
    return f"{size / 1e6:.1f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _free(path: Path) -> Path:
    """The path, or the first of `path-2`, `path-3`, … that is not taken."""
    number = 1
    free = path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder} has no readable manifest: {error}") from error
    given = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
    if isinstance(given, int) and given > FORMAT:
        raise _MaybeSound(f"{folder} has format {given}, this version reads format {FORMAT}; go on with the newer version")
    if not isinstance(manifest, dict) or given != FORMAT or not isinstance(manifest.get("files"), dict):
        raise CheckpointError(f"{folder} has format {given!r} or no list of files; this version reads format {FORMAT}")
    return manifest


def _verify(folder: Path, step: int) -> None:
    present = _entries_below(folder)
    _refuse_links(folder, {MANIFEST}, present)  # first: nothing but files is opened
    manifest = _read_manifest(folder)
    if manifest.get("step") != step:
        raise CheckpointError(f"{folder}: its manifest says step {manifest.get('step')!r}")
    files: dict[str, Any] = manifest["files"]
    if STATE not in files:
        raise CheckpointError(f"{folder}: its manifest does not list {STATE}")
    missing = sorted(files.keys() - present.keys())
    if missing:
        raise CheckpointError(f"{folder}: missing files {missing}")
    _refuse_links(folder, files, present)
    for name, fingerprint in files.items():
        if _fingerprint(folder / name) != fingerprint:
            raise CheckpointError(f"{folder / name} is not what was saved (size or SHA-256 differs)")
    unknown = sorted(name for name in present.keys() - files.keys() if _could_be_loaded(name))
    if unknown:
        raise _MaybeSound(f"{folder} is whole but holds files that nobody saved: {unknown}; move them elsewhere and resume")


def _could_be_loaded(name: str) -> bool:
    """Whether a file would take part if it lay there: the policies' folders are read whole, save for hidden files."""
    parts = name.split("/")
    return parts[0] == "policies" and not any(part.startswith(".") for part in parts)


def _refuse_links(folder: Path, names: Iterable[str], present: Mapping[str, bool]) -> None:
    """A link's content may change after it was looked at, and a pipe has no end."""
    for name in names:
        if not present.get(name, True):
            raise CheckpointError(f"{folder / name} is a link or a device; a checkpoint consists of files")


def _only_files(folder: Path) -> list[str]:
    """Relative names of all files.

    Raises:
        CheckpointError: something is neither a file nor a folder.
    """
    present = _entries_below(folder)
    _refuse_links(folder, present, present)
    return sorted(present)


def _entries_below(folder: Path) -> dict[str, bool]:
    """Relative names of everything but folders, links not followed, and whether it is a file.

    Raises:
        OSError: a folder cannot be read; `Path.rglob` would leave it out without a word.
    """
    found: dict[str, bool] = {}
    waiting = [folder] if folder.is_dir() else []
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                else:
                    found[path.relative_to(folder).as_posix()] = entry.is_file(follow_symlinks=False)
    return found


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
