"""Agents of LlamaIndex."""

from __future__ import annotations

from typing import Any

from llama_index.core.agent.workflow import CodeActAgent
from llama_index.core.llms import CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.base.llms.types import CompletionResponse, CompletionResponseGen

import brig
from brig.integrations.llama_index import BrigToolSpec, code_execute_fn


class Scripted(CustomLLM):
    """A model whose answers are written down."""

    answers: list[str]

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        return CompletionResponse(text=self.answers.pop(0))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponseGen:
        text = self.answers.pop(0)
        yield CompletionResponse(text=text, delta=text)


async def test_an_agent_writes_code_that_builds_on_itself() -> None:
    async with brig.AsyncSandbox(backend="native") as box:
        execute = code_execute_fn(box)
        answers = [
            "<execute>\nnumbers = [1, 2, 3]\n</execute>",
            "<execute>\nprint(sum(numbers))\n</execute>",
            "It is 6.",
        ]
        agent = CodeActAgent(code_execute_fn=execute, llm=Scripted(answers=answers))
        response = await agent.run("add")
        assert "It is 6." in str(response)
        assert [one.tool_output.raw_output["stdout"] for one in response.tool_calls] == ["", "6\n"]
        # The same variables.
        assert (await execute("numbers"))["value"] == [1, 2, 3]
        failed = await execute("numbers[9]")
        assert failed["exit_code"] == 1 and "IndexError" in failed["stderr"]


def test_the_tools_have_names_and_schemas() -> None:
    with brig.Sandbox(backend="native") as box:
        tools = {one.metadata.name: one for one in BrigToolSpec(box).to_tool_list()}
        assert set(tools) == {"code_interpreter", "shell"}
        assert tools["code_interpreter"].call(code="print(6 * 7)").content == "42\n"
        assert tools["shell"].call(command="echo $((6 * 7)); false").content == "42\n"
        schema = tools["shell"].metadata.get_parameters_dict()
        assert schema["required"] == ["command"]
