"""Receipts as the entries of AGT's audit chain."""

from __future__ import annotations

import hashlib
import json
from typing import Any

_EGRESS = ("code", "host", "port", "protocol", "rule")


def entry(record: dict[str, Any]) -> dict[str, Any]:
    """What ``agentmesh.governance.audit.AuditEntry`` is made of."""
    identity = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]
    decision, session = record["decision"], record["session"]
    digest = record["code_digest"]
    return {
        "entry_id": f"audit_{identity}",
        "timestamp": record["at"],
        "event_type": "sandbox.execute",
        "agent_did": record["agent"],
        "action": f"step:{record['step']}",
        "resource": f"ticket:{record['execution']}",
        "data": {
            "intent": record["action"],
            "azure_sandbox_id": session,
            "duration_seconds": record["duration_us"] / 1e6,
            "egress_decisions": [
                {
                    "action": "allow" if one["allowed"] else "deny",
                    **{key: one.get(key) for key in _EGRESS},
                }
                for one in record["egress"]
            ],
            "stdout_excerpt": record["stdout"]["excerpt"],
            "stderr_excerpt": record["stderr"]["excerpt"],
        },
        "outcome": decision,
        "policy_decision": decision,
        "matched_rule": record["reason"],
        "session_id": session,
        "policy_version": record["policy"],
        "arguments_hash": digest.removeprefix("sha256:"),
    }
