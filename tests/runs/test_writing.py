import os
import shutil
import threading

import pytest

from opentinker.errors import ConfigError, WriteFailed
from opentinker.runs.writing import write_whole, writing


def raised_by(path, error):
    with pytest.raises(type(error) if error.args[0] == "as it is" else WriteFailed) as caught, writing(path):
        raise error
    return str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        shutil.Error([("/a", "/b", "[Errno 28] No space left on device: '/a' -> '/b'")] * 2),
        Exception('Error while serializing: I/O error: No space left on device (os error 28)'),
    ],
)
def test_a_full_disk_is_told_alike_whoever_tells_it(tmp_path, error):
    said = raised_by(tmp_path / "out", error)
    assert said.startswith(f"cannot write {tmp_path / 'out'}: No space left on device (file system /")
    assert said.endswith(" MB free)") or said.endswith(" GB free)")


def test_a_place_aside_is_told_as_the_one_that_was_named(tmp_path):
    error = FileNotFoundError(2, "No such file or directory", str(tmp_path / ".out.partial-x"))
    assert raised_by(tmp_path / "out", error) == f"cannot write {tmp_path / 'out'}: No such file or directory"


@pytest.mark.parametrize("error", [ConfigError("as it is"), ZeroDivisionError("as it is")])
def test_other_faults_stay_what_they_are(tmp_path, error):
    assert raised_by(tmp_path / "out", error) == "as it is"


def test_a_file_that_could_not_be_read_is_no_fault_of_the_one_that_is_written(tmp_path):
    with pytest.raises(PermissionError, match="episodes"), writing(tmp_path / "report" / "index.html"):
        raise PermissionError(13, "Permission denied", str(tmp_path / "episodes" / "x.jsonl"))


def test_a_file_is_replaced_and_what_is_no_plain_file_is_written_as_it_stands(tmp_path):
    write_whole(tmp_path / "a", "new")
    write_whole(tmp_path / "a", "newer")
    (tmp_path / "link").symlink_to("a")
    write_whole(tmp_path / "link", "through")
    assert (tmp_path / "a").read_text() == "through" and (tmp_path / "link").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_whole(tmp_path / "pipe", "flows")
    reader.join(10)
    assert read == ["flows"] and (tmp_path / "pipe").is_fifo()
    with pytest.raises(WriteFailed, match=r"^cannot write .*: Is a directory"):
        write_whole(tmp_path, "x")
