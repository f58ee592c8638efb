"""OpenAI Chat Completions, and servers that speak its format."""
