"""One-shot runs, sessions, files, streams and checkpoints."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import brig
from brig import _native


def test_one_line_one_sandbox() -> None:
    result = brig.run("import sys; print('out'); print('err', file=sys.stderr)")
    assert (result.ok, result.exit_code, result.killed) == (True, 0, None)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert result.backend == "native"
    assert result.usage.peak_memory_bytes > 0
    assert result.receipt["decision"] == "allowed"
    assert result.receipt["execution"] == result.execution_id


def test_code_of_each_language_and_commands() -> None:
    assert brig.run("echo $((6 * 7))", language="bash").stdout == "42\n"
    assert brig.run(["printf", "%s", "a b"]).stdout == "a b"
    assert brig.run("import sys; print(sys.argv[1:])", args=["x", "y"]).stdout == "['x', 'y']\n"
    assert brig.run(["cat"], stdin="in").stdout == "in"
    with pytest.raises(brig.InvalidArgument, match="none of python, bash, node"):
        brig.run("1", language="perl")  # type: ignore[arg-type]


def test_a_failure_is_a_result_unless_it_is_checked() -> None:
    result = brig.run("import sys; sys.exit(7)")
    assert (result.ok, result.exit_code, result.status) == (False, 7, "failed")
    with pytest.raises(brig.Failed) as failed:
        brig.run("raise ValueError('no')", check=True)
    assert failed.value.code == "run.failed"
    assert "ValueError: no" in str(failed.value)
    assert failed.value.result.exit_code == 1


def test_results_cannot_be_changed() -> None:
    result = brig.run("pass")
    with pytest.raises(AttributeError):
        result.ok = False  # type: ignore[misc]
    with pytest.raises(AttributeError):
        result.extra = 1


def test_time_is_limited(box: brig.Sandbox) -> None:
    # The machine may be too slow for it to begin in the first of these times.
    for timeout in (1.5, 6, 24):
        with pytest.raises(TimeoutError) as late:
            box.run("print('begun', flush=True)\nimport time; time.sleep(60)", timeout=timeout)
        if late.value.result.stdout:
            break
    assert isinstance(late.value, brig.TimedOut)
    assert late.value.code == "run.timeout"
    assert late.value.result.stdout == "begun\n"
    assert late.value.result.killed == "timeout"
    assert box.run("print(1)").ok


def test_memory_is_limited() -> None:
    doctor = {one.name: one for one in brig.doctor().backends}["native"]
    strength = {control.name: control.strength for control in doctor.controls}["memory"]
    waive = [] if strength == "enforced" else ["memory"]
    result = brig.run("x = bytearray(1 << 30)", memory="64MiB", waive=waive, backend="native")
    assert not result.ok
    assert brig.run("x = bytearray(1 << 20)", memory="64MiB", waive=waive, backend="native").ok


def test_output_is_limited(box: brig.Sandbox) -> None:
    result = box.run("print('x' * 5000)", output=1000)
    assert result.ok and result.truncated and len(result.stdout) == 1000


def test_bad_arguments_name_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unknown option of a sandbox: memroy"):
        brig.Sandbox(memroy=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="memory: '1 bag'"):
        brig.Sandbox(memory="1 bag")
    with pytest.raises(ValueError, match="invalid agent id"):
        brig.Sandbox(agent="../x")
    with pytest.raises(TypeError, match="network: a list"):
        brig.Sandbox(network="example.com")
    with pytest.raises(brig.InvalidArgument, match="no control is named `luck`"):
        brig.Sandbox(waive=["luck"])
    with pytest.raises(brig.InvalidArgument, match="does not exist"):
        brig.Sandbox(mounts=[brig.Mount(tmp_path / "gone", "/data")])
    with pytest.raises(brig.Error) as unknown:
        brig.run("1", backend="moon")  # type: ignore[arg-type]
    assert unknown.value.code == "backend.unknown"


def test_files_go_in_and_out(box: brig.Sandbox) -> None:
    assert box.files.write("in/a.txt", "grün") == 5
    assert box.run("print(open('in/a.txt').read())").stdout == "grün\n"
    box.run("open('out.bin', 'wb').write(bytes(range(256)))", check=True)
    assert box.files.read("/workspace/out.bin") == bytes(range(256))
    entries = {one.name: one for one in box.files.list()}
    assert entries["in"].kind == "directory"
    assert (entries["out.bin"].kind, entries["out.bin"].size) == ("file", 256)
    with pytest.raises(OSError, match="outside the workspace"):
        box.files.read("/etc/passwd")
    with pytest.raises(brig.FileError):
        box.files.read("missing")


def line(pieces: Iterator[brig.Output]) -> str:
    """The first line, however many pieces it comes in."""
    text = ""
    while not text.endswith("\n"):
        text += next(pieces).text
    return text


def test_output_can_be_read_as_it_comes(box: brig.Sandbox) -> None:
    code = """
import sys
print('first', flush=True)
open('go').read()
print('last')
"""
    box.run(["mkfifo", "go"], check=True)
    with box.start(code) as running:
        pieces = iter(running)
        assert line(pieces) == "first\n"
        # Only what comes after the first piece lets it go on.
        box.run("open('go', 'w').close()", check=True)
        assert "".join(piece.text for piece in pieces) == "last\n"
        assert running.wait().stdout == "first\nlast\n"
        assert running.wait() is running.wait()


def test_characters_are_not_cut_in_two(box: brig.Sandbox) -> None:
    code = """
import os, time
data = 'grün'.encode()
os.write(1, data[:3]); time.sleep(0.2); os.write(1, data[3:])
"""
    assert "".join(piece.text for piece in box.start(code)) == "grün"


def test_what_runs_can_be_cancelled_and_signalled(box: brig.Sandbox) -> None:
    with box.start(["sleep", "600"]) as running:
        running.cancel()
        assert running.wait().killed == "cancelled"
    code = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
print('ready', flush=True)
time.sleep(600)
"""
    with box.start(code) as running:
        assert line(iter(running)) == "ready\n"
        running.signal(15)
        assert running.wait().exit_code == 9
    with box.start(["sleep", "600"]) as running:
        pass
    assert running.wait().status == "cancelled"


def test_states_are_saved_restored_and_forked(box: brig.Sandbox) -> None:
    box.files.write("a", "1")
    saved = box.checkpoints.save("before")
    assert saved.name == "before" and saved.created.tzinfo is not None
    box.run("import os; os.remove('a')", check=True)
    box.restore("before")
    assert box.files.read("a") == b"1"
    with box.fork("before") as other:
        other.files.write("a", "2")
        assert box.files.read("a") == b"1"
    assert [one.name for one in box.checkpoints.list()] == ["before"]
    with pytest.raises(brig.AlreadyExists):
        box.checkpoints.save("before")
    box.checkpoints.delete("before")
    with pytest.raises(LookupError) as missing:
        box.restore("before")
    assert isinstance(missing.value, brig.NotFound)
    assert missing.value.code == "checkpoint.unknown"


def test_a_named_session_is_found_again(tmp_path: Path) -> None:
    with brig.Sandbox(session="work", state_dir=tmp_path) as box:
        box.files.write("a", "kept")
    with brig.Sandbox.open("work", state_dir=tmp_path) as box:
        assert box.files.read_text("a") == "kept"
        box.destroy()
    with pytest.raises(brig.NotFound):
        brig.Sandbox.open("work", state_dir=tmp_path)


def test_a_closed_sandbox_says_so() -> None:
    box = brig.Sandbox()
    box.close()
    box.close()
    assert box.status == "destroyed"
    with pytest.raises(brig.Error, match="closed"):
        box.run("1")


def test_host_directories_are_shown(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("from the host")
    for path in [tmp_path, *tmp_path.parents]:
        path.chmod(path.stat().st_mode | 0o011) if path.owner() != "root" else None
    mount = brig.Mount(tmp_path / "in", "/data")
    result = brig.run("print(open('/data/a').read()); open('/data/a', 'w')", mounts=[mount])
    assert result.stdout == "from the host\n"
    assert "Read-only" in result.stderr


def test_threads_run_side_by_side(box: brig.Sandbox) -> None:
    """The interpreter is not held while one of them waits."""
    begun = time.monotonic()
    seen: list[str] = []
    box.run(["mkfifo", "meet"], check=True)

    def write() -> None:
        box.run("open('meet', 'w').write('x')", check=True)

    def read() -> None:
        seen.append(box.run("print(open('meet').read())", timeout=50, check=True).stdout)

    # Each needs the other: one after the other they would never end.
    threads = [threading.Thread(target=one) for one in (read, write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["x\n"]
    assert time.monotonic() - begun < 50


def test_doctor_says_what_is_enforced() -> None:
    doctor = brig.doctor()
    assert [one.name for one in doctor.backends] == _native.backends()
    native = doctor.backends[0]
    assert native.usable and doctor.usable, str(doctor)
    controls = {one.name: one for one in native.controls}
    assert controls["network-off"].strength == "enforced"
    assert "network-off" in str(doctor)


def test_containers_run_the_same(engine: dict[str, str]) -> None:
    with brig.Sandbox(backend="docker", **engine) as box:  # type: ignore[arg-type]
        box.files.write("a", "1")
        assert box.run("print(open('a').read())").stdout == "1\n"
        box.checkpoints.save("one")
        box.run(["rm", "a"], check=True)
        box.restore("one")
        assert box.files.read("a") == b"1"
