"""Concurrency, cancellation, forks, and the end of the interpreter."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import brig


def eventually(met: Callable[[], bool], what: str) -> None:
    """Waits for an event that comes by itself."""
    for _ in range(600):
        if met():
            return
        time.sleep(0.1)
    raise AssertionError(f"never happened: {what}")


def running(marker: str) -> list[int]:
    """Processes with this text among their arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if marker.encode() in words:
            found.append(int(process.name))
    return found


async def test_everything_has_an_async_twin(tmp_path: Path) -> None:
    async with brig.AsyncSandbox(state_dir=tmp_path, session="one") as box:
        await box.files.write("a", "1")
        assert await box.files.read_text("a") == "1"
        assert [one.name for one in await box.files.list()] == ["a"]
        await box.checkpoints.save("saved")
        await box.run(["rm", "a"], check=True)
        await box.restore("saved")
        async with await box.fork("saved") as other:
            assert await other.files.read("a") == b"1"
        execution = await box.start("print('x'); print('y')")
        assert "".join([piece.text async for piece in execution]) == "x\ny\n"
        assert (await execution.wait()).ok
        with pytest.raises(brig.TimedOut):
            await box.run(["sleep", "600"], timeout=0.5)
    async with brig.AsyncSandbox.open("one", state_dir=tmp_path) as box:
        assert await box.files.read("a") == b"1"
        await box.destroy()
    assert (await brig.adoctor()).usable
    box = await brig.AsyncSandbox()
    await box.close()


async def test_cancelling_a_task_ends_the_execution() -> None:
    async with brig.AsyncSandbox() as box:
        marker = f"600.{os.getpid()}1"
        task = asyncio.create_task(box.run(["sleep", marker]))
        await asyncio.to_thread(eventually, lambda: bool(running(marker)), "the start")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(eventually, lambda: not running(marker), "the end")
        # The same while it is read.
        execution = await box.start(["sleep", marker])
        reader = asyncio.create_task(execution.wait())
        await asyncio.to_thread(eventually, lambda: bool(running(marker)), "the start")
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await asyncio.to_thread(eventually, lambda: not running(marker), "the end")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(box.run(["sleep", marker]), 0.5)
        assert (await box.run("print(1)")).ok


async def test_cancelling_the_start_leaves_nothing() -> None:
    for delay in (0, 0.001, 0.01, 0.05):
        box = brig.AsyncSandbox()
        task = asyncio.ensure_future(box._start())
        await asyncio.sleep(delay)
        task.cancel()
        try:
            await task
            await box.close()
        except asyncio.CancelledError:
            assert box.status == "destroyed"


def test_each_thread_may_have_a_loop_of_its_own() -> None:
    seen: list[str] = []

    async def one(number: int) -> None:
        async with brig.AsyncSandbox() as box:
            seen.append((await box.run(f"print({number})")).stdout)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(one(n))) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == ["0\n", "1\n", "2\n"]


def script(text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a program that uses the package."""
    return subprocess.run(
        [sys.executable, *options, "-c", text], capture_output=True, text=True, timeout=300
    )


def test_the_import_does_not_wait_for_asyncio() -> None:
    ended = script("import brig, sys; print('asyncio' in sys.modules, brig.AsyncSandbox.__name__)")
    assert ended.stdout == "False AsyncSandbox\n"


def test_fifty_at_once_with_cancellations_and_errors() -> None:
    text = """
import asyncio, brig

async def one(box, n):
    if n % 5 == 1:
        try:
            await asyncio.wait_for(box.run(["sleep", "600"]), 0.3)
        except asyncio.TimeoutError:
            return "cancelled"
    if n % 5 == 2:
        try:
            await box.run("1", cwd="missing")
        except brig.Error:
            return "error"
        return "result"
    if n % 5 == 3:
        try:
            await box.run(["sleep", "600"], timeout=0.3)
        except brig.TimedOut:
            return "late"
    return (await box.run(f"print({n})")).stdout.strip()

async def main():
    # A busy machine is no reason for a warning.
    asyncio.get_running_loop().slow_callback_duration = 600
    async with brig.AsyncSandbox() as box:
        answers = await asyncio.gather(*(one(box, n) for n in range(50)))
    assert answers.count("cancelled") == answers.count("late") == 10, answers
    assert [answers[n] for n in range(50) if n % 5 in (0, 4)] == [str(n) for n in range(50) if n % 5 in (0, 4)]

asyncio.run(main())
print("done")
"""
    ended = script(text, "-X", "dev", "-W", "error")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("done\n", "", 0)


def test_a_fork_has_no_part_in_the_sandbox() -> None:
    text = """
import os, sys, brig
box = brig.Sandbox()
box.files.write("a", "1")
child = os.fork()
if child == 0:
    try:
        box.run("print(1)")
    except brig.Forked as error:
        assert "fork" in str(error)
        # It can have its own.
        assert brig.run("print(2)").stdout == "2\\n"
        box.close()
    else:
        os._exit(3)
    del box
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
# What the child did and dropped changed nothing here.
assert box.run("print(open('a').read())").stdout == "1\\n"
box.close()
print("done")
"""
    ended = script(text)
    assert (ended.stdout, ended.returncode) == ("done\n", 0), ended.stderr


def test_a_fork_does_not_keep_the_sandbox_alive() -> None:
    marker = f"600.{os.getpid()}5"
    text = f"""
import os, signal, sys, brig
box = brig.Sandbox(backend="native")
execution = box.start(["sleep", "{marker}"])
child = os.fork()
if child == 0:
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)
os.waitpid(child, 0)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdin is not None and parent.stdout is not None
    try:
        assert parent.stdout.readline() == "ready\n"
        eventually(lambda: bool(running(marker)), "the start")
        parent.kill()
        parent.wait()
        # The child still lives: it reads until its input ends.
        eventually(lambda: not running(marker), "the end")
    finally:
        parent.stdin.close()
        assert parent.stdout.read() == ""
        parent.stdout.close()


def test_the_interpreter_may_end_with_an_open_sandbox(tmp_path: Path) -> None:
    marker = f"600.{os.getpid()}2"
    text = f"""
import threading, time, brig
box = brig.Sandbox()
execution = box.start(["sleep", "{marker}"])
print(box.id)
"""
    ended = script(text)
    assert ended.returncode == 0 and ended.stderr == "", ended.stderr
    eventually(lambda: not running(marker), "the end")


def test_the_interpreter_may_end_in_the_middle_of_calls() -> None:
    """Threads that answer, call tools and drop what is not wanted are out of it by then."""
    text = """
import asyncio, sys, brig

def tool() -> int:
    return 1

async def main(n):
    box = await brig.AsyncSandbox(tools=[tool])
    tasks = [asyncio.create_task(box.run("for n in range(50): tool()")) for _ in range(4)]
    await asyncio.sleep(n / 20)

asyncio.run(main(int(sys.argv[1])))
"""
    for n in range(8):
        ended = subprocess.run(
            [sys.executable, "-c", text, str(n)], capture_output=True, text=True, timeout=300
        )
        assert ended.returncode == 0, ended.stderr


def test_a_killed_process_leaves_nothing_running() -> None:
    marker = f"600.{os.getpid()}3"
    text = f"""
import brig
box = brig.Sandbox()
execution = box.start(["sleep", "{marker}"])
print("ready", flush=True)
execution.wait()
"""
    child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    eventually(lambda: bool(running(marker)), "the start")
    child.kill()
    child.wait()
    child.stdout.close()
    eventually(lambda: not running(marker), "the end")


def test_ctrl_c_ends_what_runs() -> None:
    marker = f"600.{os.getpid()}4"
    text = f"""
import brig
with brig.Sandbox() as box:
    try:
        box.run(["sleep", "{marker}"])
    except KeyboardInterrupt:
        assert box.run("print(1)").stdout == "1\\n"
        print("interrupted", flush=True)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        text=True,
        # Python takes no notice of Ctrl-C if whoever started the tests in the background ignores it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    eventually(lambda: bool(running(marker)), "the start")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=300)
    assert (out, child.returncode) == ("interrupted\n", 0)
    eventually(lambda: not running(marker), "the end")


def test_an_unclosed_sandbox_is_reported_and_ended() -> None:
    text = """
import warnings, brig
warnings.simplefilter("error")
box = brig.Sandbox()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    del box
assert [one.category for one in caught] == [ResourceWarning], caught
print("done")
"""
    ended = script(text)
    assert (ended.stdout, ended.stderr) == ("done\n", "")


def test_many_executions_leave_no_descriptors(box: brig.Sandbox) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    for _ in range(20):
        box.run("pass")
    before = count()
    for _ in range(100):
        box.run("pass")
    assert count() <= before + 2
