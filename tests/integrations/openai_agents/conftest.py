"""These tests run in an environment that has the newest OpenAI Agents SDK:

pip install -e 'packages/trimtab[testing]' 'openai-agents[litellm]'
pip install pytest hypothesis pyright mypy
python -m pytest tests/integrations/openai_agents
"""
