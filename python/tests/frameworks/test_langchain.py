"""The shell tool of LangChain."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ShellToolMiddleware
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, ToolMessage

from brig.integrations.langchain import BrigExecutionPolicy
from conftest import skipped


@pytest.fixture
def program() -> str:
    """The command line of Brig."""
    program = os.environ.get("BRIG_TEST_PROGRAM")
    if not program:
        why = "the shell tool of LangChain: BRIG_TEST_PROGRAM names no `brig`"
        skipped(why)
        pytest.skip(why)
    return program


class Scripted(FakeMessagesListChatModel):
    """A model whose answers are written down."""

    def bind_tools(self, tools: Any, **_: Any) -> Scripted:
        return self


def call(command: str, number: int) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "shell", "args": {"command": command}, "id": f"call-{number}"}])


def test_an_agent_has_a_shell_that_stays_open(program: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOST_SECRET", "secret")
    (tmp_path / "data").write_text("of the host\n")
    commands = ["cd /tmp; here=kept", 'echo "$PWD $here ${HOST_SECRET-none}"', "cat /workspace/data; echo w > /workspace/new"]
    model = Scripted(responses=[*(call(one, n) for n, one in enumerate(commands)), AIMessage("done")])
    policy = BrigExecutionPolicy(program=program, arguments=["--backend", "native"])
    middleware = ShellToolMiddleware(workspace_root=tmp_path, execution_policy=policy)
    agent = create_agent(model, middleware=[middleware])
    answer = agent.invoke({"messages": [("user", "go")]})
    said = [str(one.content).strip() for one in answer["messages"] if isinstance(one, ToolMessage)]
    assert said[1:] == ["/tmp kept none", "of the host"]
    assert (tmp_path / "new").read_text() == "w\n"


def test_a_program_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="brig.integrations.deepagents"):
        BrigExecutionPolicy(program="no-such-brig").spawn(workspace=tmp_path, env={}, command=["/bin/sh"])


def test_what_is_given_is_passed_and_what_is_inherited_is_not(program: str, tmp_path: Path, monkeypatch: Any) -> None:
    started: list[Any] = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda line, **more: started.append((line, more)) or popen(line, **more))
    monkeypatch.setenv("HOST_SECRET", "of the host")
    env = {"HOST_SECRET": "of the host", "TOKEN": "passed=#on ", "PATH": "/passed:/usr/bin:/bin", "DOCKER_HOST": "passed"}
    policy = BrigExecutionPolicy(program=program, session_timeout=60, arguments=["--backend", "native"])
    command = ["sh", "-c", 'echo "$TOKEN|$PATH|$DOCKER_HOST|${HOST_SECRET-none}"']
    with policy.spawn(workspace=tmp_path, env=env, command=command) as shell:
        out, _ = shell.communicate(timeout=120)
    assert out == "passed=#on |/passed:/usr/bin:/bin|passed|none\n"
    ((line, options),) = started
    # Neither where other users can see it, nor in the environment of `brig` itself.
    assert not any("passed" in word for word in line if word != str(tmp_path)) and options.get("env") is None
    assert "60s" in line


def test_variables_that_can_not_be_passed_are_refused(tmp_path: Path) -> None:
    policy = BrigExecutionPolicy(program="sh")
    for env in ({"A": "one\nLD_PRELOAD=two"}, {"A\nB": "x"}, {"A": "x\r"}):
        with pytest.raises(ValueError, match="variable"):
            policy.spawn(workspace=tmp_path, env=env, command=["bash"])


@pytest.mark.parametrize("field", ["code", "scan", "command"])
def test_a_policy_whose_rules_would_see_nothing_is_refused(field: str, program: str, tmp_path: Path) -> None:
    rule = {"name": "no", "condition": {"field": field, "operator": "contains", "value": "curl"}, "action": "deny"}
    path = tmp_path / "policy.json"
    workspace = tmp_path / "work"
    workspace.mkdir()
    policy = BrigExecutionPolicy(program=program, policy=path, session_timeout=60, arguments=["--backend", "native"])
    path.write_text(json.dumps({"rules": [rule], "defaults": {"action": "allow"}}))
    with pytest.raises(ValueError, match="brig.integrations.deepagents"):
        policy.spawn(workspace=workspace, env={}, command=["sh", "-c", "echo ran"])
    # The flag has its check too: there is one way to give a policy.
    for flags in (["--policy", str(path)], [f"--policy={path}"], ["--policy-root", str(tmp_path)]):
        with pytest.raises(ValueError, match="`policy`"):
            BrigExecutionPolicy(program=program, arguments=flags).spawn(workspace=workspace, env={}, command=["sh"])
    path.write_text(json.dumps({"rules": [], "defaults": {"action": "allow"}}))
    with policy.spawn(workspace=workspace, env={}, command=["sh", "-c", "echo ran"]) as shell:
        assert shell.communicate(timeout=120)[0] == "ran\n"
