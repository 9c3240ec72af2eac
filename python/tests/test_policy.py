"""Policies, denials, approvals and the audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import brig

NO_SUBPROCESS: dict[str, Any] = {
    "name": "demo",
    "rules": [
        {
            "name": "no-subprocess",
            "condition": {"field": "code", "operator": "contains", "value": "subprocess"},
            "action": "deny",
            "message": "starting other programs is not allowed",
        }
    ],
    "defaults": {"action": "allow", "timeout_seconds": 30},
}


def test_a_denial_says_what_and_why() -> None:
    with brig.Sandbox(policy=NO_SUBPROCESS) as box:
        assert box.run("print(1)").ok
        with pytest.raises(PermissionError) as denied:
            box.run("import subprocess")
        error = denied.value
        assert isinstance(error, brig.Denied)
        assert (error.code, error.rule) == ("policy.rule", "no-subprocess")
        assert error.reason == "starting other programs is not allowed"
        assert error.hint and "no-subprocess" in error.hint
        assert error.report["decision"]["allowed"] is False
        assert [one["decision"] for one in box.receipts()] == ["allowed", "denied-by-policy"]


def test_policies_come_from_paths_mappings_and_objects(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("defaults: {action: deny}\n")

    class Document:
        def model_dump(self, mode: str) -> dict[str, Any]:
            assert mode == "json"
            return {"defaults": {"action": "deny"}, "unknown_key": None}

    for policy in (path, str(path), brig.Policy(path), {"defaults": {"action": "deny"}}, Document()):
        with pytest.raises(brig.Denied):
            brig.run("1", policy=policy)
    # Several hold together.
    with pytest.raises(brig.Denied):
        brig.run("import subprocess", policy=[{"defaults": {"action": "allow"}}, NO_SUBPROCESS])
    with pytest.raises(TypeError, match="not a policy: int"):
        brig.run("1", policy=5)


def test_a_policy_that_the_code_could_change_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("defaults: {action: allow}\n")
    with pytest.raises(brig.InvalidArgument) as refused:
        brig.Sandbox(policy=path, workspace=tmp_path)
    assert refused.value.code == "policy.writable"
    assert brig.run("1", policy=path).ok


def test_problems_have_positions() -> None:
    with pytest.raises(ValueError) as invalid:
        brig.Policy.parse("defaults:\n  acton: allow\n", name="p.yaml")
    assert isinstance(invalid.value, brig.PolicyInvalid)
    assert invalid.value.problems[0]["line"] == 2
    assert "p.yaml:2:" in str(invalid.value)


def test_a_policy_explains_itself() -> None:
    policy = brig.Policy(NO_SUBPROCESS)
    explanation = policy.explain("import subprocess")
    assert not explanation.decision.allowed
    assert explanation.considered[0]["outcome"] == "match"
    assert "no-subprocess" in str(explanation) and "denied" in str(explanation)
    assert policy.decide(command=["ls"]).allowed
    assert "timeout_seconds = 30" in str(policy.explain())
    with pytest.raises(brig.InvalidArgument, match="a fact that Brig states itself"):
        policy.decide("1", facts={"agent_id": "root"})


def test_facts_add_and_never_replace() -> None:
    policy = {
        "rules": [
            {
                "name": "tool",
                "condition": {"field": "tool_name", "operator": "eq", "value": "evil"},
                "action": "deny",
            }
        ],
        "defaults": {"action": "allow"},
    }
    with brig.Sandbox(policy=policy) as box:
        assert box.run("1", facts={"tool_name": "good"}).ok
        with pytest.raises(brig.Denied):
            box.run("1", facts={"tool_name": "evil"})
        with pytest.raises(brig.InvalidArgument):
            box.run("1", facts={"code": "print(1)"})


def test_the_network_is_closed_and_attempts_are_listed() -> None:
    code = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)"
    result = brig.run(code, backend="native")
    assert not result.ok
    attempt = result.denied[0]
    assert (attempt.kind, attempt.what) == ("network", "192.0.2.1:80")
    assert attempt.code == "network.address"


APPROVAL: dict[str, Any] = {"defaults": {"action": "require_approval"}}


def test_an_approver_answers() -> None:
    asked: list[brig.ApprovalRequest] = []

    def approve(request: brig.ApprovalRequest) -> bool | brig.Approval:
        asked.append(request)
        return "good" in request.text or brig.Approval(False, by="alice", reason="too bad")

    with brig.Sandbox(policy=APPROVAL, approve=approve) as box:
        assert box.run("print('good')").stdout == "good\n"
        with pytest.raises(brig.Denied) as denied:
            box.run("print('bad')")
    assert [one.kind for one in asked] == ["code", "code"]
    assert asked[0].timeout > 0
    assert denied.value.report["decision"]["approval"]["by"] == "alice"
    # Nobody to ask, and one who fails: both are denials.
    with pytest.raises(brig.Denied):
        brig.run("1", policy=APPROVAL)
    with pytest.raises(brig.Denied):
        brig.run("1", policy=APPROVAL, approve=lambda request: None)


def test_the_log_is_verified(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    with brig.Sandbox(audit=log) as box:
        box.run("print(1)")
    verified = brig.audit.verify(log)
    assert verified.records > 0 and verified.head.size == verified.records
    segment = next(log.glob("*.jsonl"))
    text = segment.read_text()
    assert '"exit_code":0' in text
    segment.write_text(text.replace('"exit_code":0', '"exit_code":1'))
    with pytest.raises(brig.AuditError) as changed:
        brig.audit.verify(log)
    assert changed.value.code.startswith("audit.")
    assert changed.value.record is not None
