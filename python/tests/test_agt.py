"""AGT's own code takes what the package gives it, and the other way round."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import brig
from brig.agent_sandbox import BrigSandboxProvider
from brig.agent_sandbox._provider import _policy
from conftest import skipped


def module_of_agt(package: str, file: str) -> Any:
    """One module of AGT by itself: its packages would import all of AGT."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        why = "AGT's own code: agent-governance-toolkit-core is not installed"
        skipped(why)
        pytest.skip(why)
    path = Path(found.submodule_search_locations[0]) / file
    spec = importlib.util.spec_from_file_location(f"agt_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_receipts_make_a_chain_of_agt() -> None:
    audit = module_of_agt("agentmesh", "governance/audit.py")
    policy = {
        "rules": [
            {
                "name": "no",
                "condition": {"field": "code", "operator": "contains", "value": "no"},
                "action": "deny",
            }
        ],
        "defaults": {"action": "allow"},
    }
    chain = audit.MerkleAuditChain()
    with BrigSandboxProvider("native") as provider:
        session = provider.create_session("a", policy)
        provider.execute_code("a", session.session_id, "print('é')")
        with pytest.raises(PermissionError):
            provider.execute_code("a", session.session_id, "no")
        connect = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
        provider.execute_code("a", session.session_id, connect)
        for receipt in provider.receipts():
            chain.add_entry(audit.AuditEntry(**receipt))
    assert chain.verify_chain() == (True, None)
    outcomes = [one.outcome for one in chain._entries]
    assert outcomes == ["allowed", "denied-by-policy", "blocked-at-egress"]
    last = chain._entries[-1]
    assert last.data["egress_decisions"][0]["action"] == "deny"
    assert chain.verify_proof(last.entry_hash, chain.get_proof(last.entry_id), chain.get_root_hash())
    last.data["egress_decisions"][0]["action"] = "allow"
    assert chain.verify_chain()[0] is False


def test_a_policy_document_of_agt_is_taken() -> None:
    schema = module_of_agt("agent_os", "policies/schema.py")
    document = schema.PolicyDocument(
        name="agt",
        rules=[
            schema.PolicyRule(
                name="no-subprocess",
                condition=schema.PolicyCondition(field="code", operator="contains", value="subprocess"),
                action="deny",
                message="not here",
            )
        ],
        defaults=schema.PolicyDefaults(action="allow", max_memory_mb=512, timeout_seconds=30),
        network_allowlist=["api.example.com"],
    )
    policy = brig.Policy(document)
    assert policy.name == "agt" and policy.decide("print(1)").allowed
    assert policy.decide("import subprocess").reason == "not here"
    effective = {one["name"]: one["value"] for one in policy.explain().effective}
    assert (effective["max_memory_mb"], effective["timeout_seconds"]) == (512, 30)
    # Those that nobody filled in, and those of a provider, are read the same way.
    assert brig.Policy(schema.PolicyDocument()).decide("print(1)").allowed
    held = SimpleNamespace(defaults=schema.PolicyDefaults(action="deny"), rules=document.rules)
    assert not _policy(held).decide("print(1)").allowed
    assert _policy(held).decide("import subprocess").reason == "not here"
