import errno
import json
import logging
import math
import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError

from opentinker.errors import CheckpointError
from opentinker.runs import checkpoints as module
from opentinker.runs.checkpoints import FORMAT, MANIFEST, STATE, CheckpointStore, write_synced


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


def write_policies(text):
    """What a host writes: nested folders, binary and text, an empty file."""

    def write(folder):
        weights = folder / "learner" / "weights"
        weights.mkdir(parents=True)
        (weights / "model.bin").write_bytes(text.encode() * 100)
        (weights / "empty").touch()
        (folder / "learner" / "state.json").write_text(json.dumps({"text": text}))

    return write


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "checkpoints")


def save(store, step, text=None):
    text = text or f"weights of {step}"
    return store.save(step, {"text": text}, write_policies(text))


def sound(checkpoint):
    """Whether state and weights are of one save."""
    text = checkpoint.state["text"]
    assert (checkpoint.policy_folder("learner") / "weights" / "model.bin").read_bytes() == text.encode() * 100
    return text


def test_what_is_saved_is_loaded(store):
    state = {"time_s": 0.1 + 0.2, "tiny": 5e-324, "nan": math.nan, "deep": [{"ü": None}], "big": 2**80}
    folder = store.save(20, state, write_policies("w"))
    found = store.load(20)
    assert found.folder == folder == store.folder / "step-000020"
    assert found.step == 20
    assert math.isnan(found.state["nan"])
    assert {**found.state, "nan": 0} == {**state, "nan": 0}
    assert found.policy_folder("learner") == folder / "policies" / "learner"
    assert json.loads((found.policy_folder("learner") / "state.json").read_text()) == {"text": "w"}


@settings(deadline=None, max_examples=30)
@given(value=st.floats(allow_nan=False))
def test_floats_survive_exactly(value, tmp_path_factory):
    store = CheckpointStore(tmp_path_factory.mktemp("floats"))
    store.save(1, {"value": value}, write_policies("w"))
    assert store.load(1).state["value"].hex() == value.hex()


def test_the_newest_whole_checkpoint_is_found(store):
    assert store.newest() is None
    assert store.steps() == []
    for step in (0, 100, 20, 1_234_567):
        save(store, step)
    (store.folder / "step-7").mkdir()
    (store.folder / "step-²²²²²²").mkdir()
    (store.folder / "step-000009").touch()
    assert store.steps() == [0, 20, 100, 1_234_567]
    assert store.newest().step == 1_234_567


def test_a_missing_step_and_one_below_zero_are_told(store):
    with pytest.raises(CheckpointError, match="step-000003 has no readable manifest"):
        store.load(3)
    with pytest.raises(ValueError, match="step 0 or later, not -1"):
        save(store, -1)


# Killed at any instant.


def instants(monkeypatch, kill_at, after):
    """Ends the process before or after the n-th write that must last."""
    count = 0
    for name in ("fsync", "rename", "replace"):
        real = getattr(os, name)

        def call(*args, real=real):
            nonlocal count
            count += 1
            if count == kill_at and not after:
                raise Killed
            result = real(*args)
            if count == kill_at:
                raise Killed
            return result

        monkeypatch.setattr(module.os, name, call)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("again", [False, True], ids=["next step", "same step"])
def test_a_kill_at_any_write_leaves_the_old_or_the_new_one(tmp_path, monkeypatch, after, again):
    seen = set()
    for kill_at in range(1, 100):
        store = CheckpointStore(tmp_path / str(kill_at))
        save(store, 1, "oldest")
        save(store, 2, "old")
        with monkeypatch.context() as patch:
            instants(patch, kill_at, after)
            try:
                save(store, 2 if again else 3, "new")
            except Killed:
                finished = False
            else:
                finished = True
        found = store.newest()
        seen.add(sound(found))
        assert sound(found) in ({"oldest", "old", "new"} if again else {"old", "new"})
        store.sweep()
        assert sorted(entry.name for entry in store.folder.iterdir() if entry.name.startswith(".")) == []
        save(store, 3, "next")  # and the run goes on
        assert sound(store.newest()) == "next"
        if finished:
            break
    assert kill_at > 10, "few instants were tried"
    assert {"old", "new"} <= seen
    assert finished


def test_a_kill_while_policies_are_written_leaves_the_old_one(store):
    save(store, 1)

    def die(folder):
        write_policies("half")(folder)
        raise Killed

    with pytest.raises(Killed):
        store.save(2, {}, die)
    assert store.newest().step == 1
    save(store, 2)
    assert store.newest().step == 2


def test_everything_is_on_disk_before_the_manifest_and_the_manifest_before_the_name(store, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(
        module.os, "fsync", lambda handle: (synced.append(os.readlink(f"/proc/self/fd/{handle}")), real(handle))
    )
    save(store, 5)
    partial = store.folder / ".partial-step-000005"
    names = [os.path.relpath(path, partial) for path in synced]
    manifest = names.index(f".{MANIFEST}.partial")
    inside = {"policies", "policies/learner", "policies/learner/weights"}
    files = {STATE, "policies/learner/state.json", "policies/learner/weights/model.bin", "policies/learner/weights/empty"}
    assert set(names[:manifest]) == inside | files
    assert names[manifest + 1 :] == [".", ".", ".."]


@pytest.mark.parametrize("before", [None, "old"])
def test_a_synced_file_is_the_old_or_the_new_one(tmp_path, monkeypatch, before):
    for kill_at in range(1, 5):
        file = tmp_path / f"file{kill_at}"
        if before is not None:
            file.write_text(before)
        with monkeypatch.context() as patch:
            instants(patch, kill_at, after=False)
            try:
                write_synced(file, "new")
            except Killed:
                assert (file.read_text() if file.exists() else None) in (before, "new")
            else:
                assert file.read_text() == "new"
                assert kill_at == 4
    assert kill_at == 4


# Torn or altered.

FILES = [STATE, "policies/learner/state.json", "policies/learner/weights/model.bin", "policies/learner/weights/empty"]


def _flip(file):
    data = bytearray(file.read_bytes() or b"\0")
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _truncate(file):
    file.write_bytes(file.read_bytes()[:-1] if file.stat().st_size else b"x")


def _link(file):
    same = next(folder for folder in file.parents if folder.name == "checkpoints").with_name(f"same-{file.name}")
    shutil.copy(file, same)
    file.unlink()
    file.symlink_to(same)


def _fifo(file):
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
@pytest.mark.parametrize("harm", [_flip, _truncate, Path.unlink, _link, _fifo], ids=lambda harm: harm.__name__)
def test_an_altered_file_is_never_loaded_and_the_one_before_is(store, name, harm, caplog):
    save(store, 1)
    folder = save(store, 2)
    harm(folder / name)
    with pytest.raises(CheckpointError, match="step-000002"):
        store.load(2)
    with caplog.at_level(logging.WARNING):
        assert sound(store.newest()) == "weights of 1"
    assert "passing over a checkpoint that cannot be used" in caplog.text


def _added(folder):
    (folder / "policies" / "extra").touch()


def _added_weights(folder):
    (folder / "policies" / "learner" / "weights" / "extra.bin").touch()


def _added_link(folder):
    (folder / "policies" / "other").symlink_to(folder / "policies" / "learner", target_is_directory=True)


def _linked_folder(folder):
    moved = folder.parent.parent / "moved"
    (folder / "policies" / "learner").rename(moved)
    (folder / "policies" / "learner").symlink_to(moved, target_is_directory=True)


def _swapped(folder):
    weights = folder / "policies" / "learner" / "weights"
    (weights / "model.bin").rename(weights / "x")
    (weights / "empty").rename(weights / "model.bin")
    (weights / "x").rename(weights / "empty")


def _edited(change):
    def edit(folder):
        manifest = json.loads((folder / MANIFEST).read_text())
        change(manifest)
        (folder / MANIFEST).write_text(json.dumps(manifest))

    return edit


EDITS = {
    "folder replaced by a link": _linked_folder,
    "files swapped": _swapped,
    "path out of the folder": _edited(lambda manifest: manifest["files"].update({"../step-000001/state.json": {}})),
    "absolute path": _edited(lambda manifest: manifest["files"].update({"/etc/hostname": {}})),
    "state not listed": _edited(lambda manifest: manifest["files"].pop(STATE)),
    "hash changed": _edited(lambda manifest: manifest["files"][STATE].update(sha256="0" * 64)),
    "size changed": _edited(lambda manifest: manifest["files"][STATE].update(bytes=1)),
    "entry is null": _edited(lambda manifest: manifest["files"].update({STATE: None})),
    "step changed": _edited(lambda manifest: manifest.update(step=3)),
    "no step": _edited(lambda manifest: manifest.pop("step")),
    "no files": _edited(lambda manifest: manifest.pop("files")),
    "files is a list": _edited(lambda manifest: manifest.update(files=list(manifest["files"]))),
    "older format": _edited(lambda manifest: manifest.update(format=FORMAT - 1)),
    "no format": _edited(lambda manifest: manifest.pop("format")),
    "format is text": _edited(lambda manifest: manifest.update(format=str(FORMAT))),
    "a list": lambda folder: (folder / MANIFEST).write_text(f"[{(folder / MANIFEST).read_text()}]"),
    "not JSON": lambda folder: (folder / MANIFEST).write_text("{"),
    "not UTF-8": lambda folder: (folder / MANIFEST).write_bytes(b"\xff\xfe"),
    "empty": lambda folder: (folder / MANIFEST).write_text(""),
}


def _noted(folder):
    for name in ("notes.txt", ".DS_Store", "policies/.DS_Store", "policies/learner/weights/.DS_Store"):
        (folder / name).touch()
    (folder / "link").symlink_to(folder)


def test_files_that_nothing_would_load_do_no_harm(store):
    save(store, 1)
    _noted(save(store, 2))
    assert sound(store.newest()) == "weights of 2"
    store.rewind(2)
    assert sound(store.newest()) == "weights of 2"


@pytest.mark.parametrize(
    ("harm", "name"),
    [
        (_added, "policies/extra"),
        (_added_link, "policies/other"),
        (_added_weights, "policies/learner/weights/extra.bin"),
        (_edited(lambda manifest: manifest["files"].pop(FILES[2])), FILES[2]),
    ],
    ids=["file", "link", "weights", "entry dropped"],
)
def test_a_whole_checkpoint_with_files_that_could_be_loaded_is_neither_loaded_nor_passed_over(store, harm, name):
    save(store, 1)
    harm(save(store, 2))
    message = re.escape(f"step-000002 is whole but holds files that nobody saved: ['{name}']; move them elsewhere and")
    for look in (lambda: store.load(2), store.newest):
        with pytest.raises(CheckpointError, match=message):
            look()
    assert store.steps() == [1, 2]


@pytest.mark.parametrize("harm", EDITS.values(), ids=EDITS)
def test_an_altered_folder_or_manifest_is_never_loaded_and_the_one_before_is(store, harm):
    save(store, 1)
    harm(save(store, 2))
    with pytest.raises(CheckpointError, match="step-000002"):
        store.load(2)
    assert sound(store.newest()) == "weights of 1"


def test_the_state_cannot_be_left_out_of_the_manifest(store):
    folder = save(store, 2)
    EDITS["state not listed"](folder)
    (folder / STATE).unlink()
    with pytest.raises(CheckpointError, match="does not list state.json"):
        store.load(2)


def _raising(real, name, error):
    def broken(path, *args, **kwargs):
        if Path(path).name == name:
            raise error
        return real(path, *args, **kwargs)

    return broken


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), OSError(errno.EACCES, "Permission denied")])
@pytest.mark.parametrize("name", ["model.bin", MANIFEST, STATE, "weights", "checkpoints"])
def test_what_cannot_be_read_at_the_moment_is_never_passed_over(store, monkeypatch, name, error):
    """A file while it is hashed or read; a folder while it is listed."""
    save(store, 1)
    save(store, 2)
    with monkeypatch.context() as patch:
        for owner, attribute in ((Path, "open"), (os, "scandir"), (os, "listdir"), (Path, "iterdir")):
            patch.setattr(owner, attribute, _raising(getattr(owner, attribute), name, error))
        with pytest.raises(CheckpointError, match=f"cannot be read: .*{error.strerror}"):
            store.newest()
    assert sound(store.newest()) == "weights of 2"


def test_a_file_that_goes_while_it_is_looked_for_is_missing(store, monkeypatch):
    save(store, 1)
    weights = save(store, 2) / "policies" / "learner" / "weights" / "model.bin"
    real = module._read_manifest
    monkeypatch.setattr(module, "_read_manifest", lambda folder: (real(folder), weights.unlink(missing_ok=True))[0])
    with pytest.raises(CheckpointError, match="step-000002 is not whole: .*model.bin"):
        store.load(2)
    assert store.newest().step == 1


def test_a_checkpoint_of_a_newer_version_is_never_passed_over(store):
    save(store, 1)
    _edited(lambda manifest: manifest.update(format=FORMAT + 1))(save(store, 2))
    message = f"step-000002 has format {FORMAT + 1}, this version reads format {FORMAT}; go on with the newer version"
    with pytest.raises(CheckpointError, match=message):
        store.newest()


def test_where_none_can_be_used_the_run_does_not_begin_anew(store):
    for step in (1, 2):
        _flip(save(store, step) / STATE)
    with pytest.raises(CheckpointError, match=r"none of the checkpoints of steps \[1, 2\] in .* can be used"):
        store.newest()


def test_a_link_among_the_policies_is_refused_when_saving(store):
    def write(folder):
        (folder / "weights").symlink_to("/etc/hostname")

    with pytest.raises(CheckpointError, match="weights is a link or a device"):
        store.save(1, {}, write)
    assert store.newest() is None


# Going back.


def names(store):
    return sorted(entry.name for entry in store.folder.iterdir())


def test_rewind_sets_aside_what_came_after_and_deletes_nothing(store, caplog):
    for step in (0, 10, 20):
        save(store, step)
    _flip(store.folder / "step-000020" / STATE)
    (store.folder / ".partial-step-000030" / "policies").mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        store.rewind(10)
    assert "step-000020 is set aside as .rejected-step-000020" in caplog.text
    assert names(store) == [".rejected-step-000020", "step-000000", "step-000010"]
    assert store.newest().step == 10
    save(store, 20, "again")
    assert sound(store.newest()) == "again"
    store.rewind(10)
    save(store, 20, "and again")
    store.rewind(10)
    rejected = [".rejected-step-000020", ".rejected-step-000020-2", ".rejected-step-000020-3"]
    assert names(store) == [*rejected, "step-000000", "step-000010"]
    states = [store.folder / name / "policies" / "learner" / "state.json" for name in rejected]
    kept = [json.loads(state.read_text())["text"] for state in states]
    assert kept == ["weights of 20", "again", "and again"]
    store.rewind(-1)
    assert store.newest() is None
    assert len(names(store)) == 5


def test_a_store_holds_nothing_until_something_was_saved(store):
    assert store.holds_nothing()
    (store.folder / ".partial-step-000001").mkdir(parents=True)
    assert store.holds_nothing()
    save(store, 1)
    assert not store.holds_nothing()
    store.rewind(0)
    assert not store.holds_nothing()


def test_leftovers_are_swept_and_nothing_else(store):
    store.sweep()  # no folder yet
    save(store, 1)
    (store.folder / ".partial-step-000002").mkdir()
    (store.folder / ".partial-file").touch()
    (store.folder / ".partial-link").symlink_to(store.folder / "step-000001")
    (store.folder / "notes.txt").touch()
    store.sweep()
    assert sorted(entry.name for entry in store.folder.iterdir()) == ["notes.txt", "step-000001"]
    assert store.newest().step == 1


# A save that fails.


def _fails(error):
    def write(folder):
        write_policies("half")(folder)
        raise error

    return write


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("No space left"), Exception("No space left")]
)
def test_a_save_that_fails_is_told_and_leaves_the_last_good_one(store, error):
    save(store, 1)
    message = r"cannot save step 2 in .*step-000002: .*No space left.*; the last good checkpoint is kept"
    with pytest.raises(CheckpointError, match=message):
        store.save(2, {}, _fails(error))
    assert names(store) == ["step-000001"]
    assert store.newest().step == 1


def test_a_programming_error_in_a_save_stays_what_it_is_and_leaves_nothing(store):
    with pytest.raises(TypeError, match="not JSON serializable"):
        store.save(2, {"x": object()}, write_policies("w"))
    with pytest.raises(ZeroDivisionError):
        store.save(2, {}, _fails(ZeroDivisionError()))
    assert names(store) == []


def test_a_save_that_fails_at_its_last_rename_puts_the_replaced_one_back(store, monkeypatch):
    save(store, 1, "old")
    real = os.rename

    def rename(source, target):
        if Path(source).name == ".partial-step-000001":
            raise OSError(errno.EIO, "Input/output error")
        real(source, target)

    monkeypatch.setattr(module.os, "rename", rename)
    with pytest.raises(CheckpointError, match="the last good checkpoint is kept"):
        save(store, 1, "new")
    assert sound(store.newest()) == "old"
    assert names(store) == ["step-000001"]


def test_leftovers_that_cannot_be_removed_do_not_hide_why_a_save_failed(store, monkeypatch, caplog):
    save(store, 1)
    stuck = _raising(shutil.rmtree, ".partial-step-000002", OSError(errno.EIO, "Input/output error"))
    monkeypatch.setattr(module.shutil, "rmtree", stuck)
    with pytest.raises(CheckpointError, match="No space left"), caplog.at_level(logging.WARNING):
        store.save(2, {}, _fails(OSError(errno.ENOSPC, "No space left on device")))
    assert "cannot remove what a failed save left" in caplog.text
