"""Sandboxes for agent frameworks, one module for each.

``langchain``, ``deepagents``, ``smolagents``, ``openai_agents``, ``pydantic_ai`` and ``llama_index`` need the extra of
the same name, such as ``pip install 'brig-sandbox[smolagents]'``. Nothing of a framework is imported before its module
is.
"""
