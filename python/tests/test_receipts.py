"""No receipt is lost without a word."""

from __future__ import annotations

import json
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import brig
from brig import _native
from brig.agent_sandbox import BrigSandboxProvider, SessionStatus

DENY = {"defaults": {"action": "deny"}}


def deny(box: brig.Sandbox, count: int) -> None:
    """Executions that cost nothing, and have receipts all the same."""
    for _ in range(count):
        with pytest.raises(brig.Denied):
            box.run("x")


def test_what_memory_no_longer_has_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brig._core.KEPT", 5)
    with brig.Sandbox(backend="native") as box:
        first = box.run("print('first')")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert first.receipt["execution"] == first.execution_id
            assert len(box.receipts()) == 1
        for _ in range(6):
            last = box.run(["true"])
        with pytest.warns(RuntimeWarning, match="2 older receipts are no longer kept"):
            kept = box.receipts()
        assert len(kept) == 5 and kept[-1]["execution"] == last.execution_id
        with pytest.raises(brig.NotFound) as gone:
            first.receipt  # noqa: B018
        assert gone.value.code == "audit.no-record"


def test_memory_is_limited_by_size_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Few large receipts are as many as many small ones, and what is dropped is counted."""
    made = _native.Receipts
    large = "print('x' * 100_000)"

    def size(box: brig.Sandbox) -> int:
        return len(json.dumps(box.run(large).receipt, separators=(",", ":")))

    with brig.Sandbox(backend="native") as box:
        one = size(box)
    # Room for two and a half.
    monkeypatch.setattr("brig._core._native.Receipts", lambda kept: made(kept, one * 5 // 2))
    with brig.Sandbox(backend="native") as box:
        for _ in range(5):
            last = box.run(large)
        with pytest.warns(RuntimeWarning, match="3 older receipts are no longer kept"):
            kept = box.receipts()
        assert len(kept) == 2 and kept[-1]["execution"] == last.execution_id
    # With a log none is missing.
    with brig.Sandbox(backend="native", audit=tmp_path / "audit") as box:
        for _ in range(5):
            box.run(large)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [one["step"] for one in box.receipts()] == list(range(5))
    # One that is larger than all there is room for is counted too.
    monkeypatch.setattr("brig._core._native.Receipts", lambda kept: made(kept, 10))
    with brig.Sandbox(backend="native") as box:
        box.run(["true"])
        with pytest.warns(RuntimeWarning, match="1 older receipt"):
            assert box.receipts() == []


def test_with_a_log_all_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("brig._core.KEPT", 5)
    log = tmp_path / "audit"
    # Of an earlier sandbox, whose session has the same name.
    with brig.Sandbox(backend="native", audit=log, session="one", policy=DENY) as box:
        deny(box, 3)
    with brig.Sandbox(backend="native", audit=log, session="one") as box:
        first = box.run("print('first')")
        for _ in range(11):
            box.run(["true"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            receipts = box.receipts()
        assert [one["step"] for one in receipts] == list(range(12))
        assert first.receipt == receipts[0]
        assert receipts[0]["stdout"]["excerpt"].startswith("first")


def test_a_provider_counts_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("brig.agent_sandbox._provider._KEPT", 5)

    def executed(provider: BrigSandboxProvider) -> None:
        for agent in ("a", "b"):
            session = provider.create_session(agent, DENY)
            for _ in range(4):
                with pytest.raises(PermissionError):
                    provider.execute_code(agent, session.session_id, "x")
            provider.destroy_session(agent, session.session_id)

    with BrigSandboxProvider("native") as provider:
        executed(provider)
        with pytest.warns(RuntimeWarning, match="3 older receipts are no longer kept"):
            receipts = provider.receipts()
        assert [one["agent_did"] for one in receipts] == ["a", "b", "b", "b", "b"]
    with BrigSandboxProvider("native", options={"audit": tmp_path / "audit"}) as provider:
        executed(provider)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            receipts = provider.receipts()
        assert [one["agent_did"] for one in receipts] == ["a"] * 4 + ["b"] * 4


def test_what_is_ended_with_its_session_has_a_receipt() -> None:
    with BrigSandboxProvider("native") as provider:
        session = provider.create_session("a")
        answers: list[Any] = []

        def run() -> None:
            code = "print('begun', flush=True)\nimport time; time.sleep(600)"
            answers.append(provider.execute_code("a", session.session_id, code))

        thread = threading.Thread(target=run)
        thread.start()
        while provider.get_session_status("a", session.session_id) is not SessionStatus.EXECUTING:
            assert thread.is_alive()
            time.sleep(0.01)
        provider.destroy_session("a", session.session_id)
        thread.join(60)
        assert not thread.is_alive()
        receipts = provider.receipts()
    assert [one["session_id"] for one in receipts] == [session.session_id]
    assert receipts[0]["outcome"] not in ("allowed", "denied-by-policy")
    assert answers[0].result.success is False
