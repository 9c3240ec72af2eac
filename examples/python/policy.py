"""A policy decides, an approver answers, and the log is verified."""

import tempfile
from pathlib import Path

import brig

POLICY = brig.Policy.parse(
    """
name: research
rules:
  - name: no-subprocess
    condition: {field: code, operator: contains, value: subprocess}
    action: deny
    message: starting other programs is not allowed
  - name: ask-before-writing
    condition: {field: code, operator: contains, value: "open("}
    action: require_approval
    message: writes files
defaults: {action: allow, timeout_seconds: 20}
"""
)


def approve(request: brig.ApprovalRequest) -> brig.Approval:
    """A person would be asked here."""
    return brig.Approval("report.txt" in request.text, by="operator", reason="only the report")


print(POLICY.explain("import subprocess"))

with tempfile.TemporaryDirectory() as place:
    log = Path(place) / "audit"
    with brig.Sandbox(policy=POLICY, approve=approve, audit=log) as box:
        box.run("print('allowed')", check=True)
        box.run("open('report.txt', 'w').write('done')", check=True)
        for code in ("import subprocess", "open('other.txt', 'w')"):
            try:
                box.run(code)
            except brig.Denied as denied:
                print(f"{denied.code}: {denied.reason}")
            else:
                raise AssertionError("it was not denied")
    verified = brig.audit.verify(log)
    print(f"{verified.records} records, signed up to {verified.head.size}")
