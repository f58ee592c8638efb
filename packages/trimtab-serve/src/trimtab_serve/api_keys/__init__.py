"""API keys: who may call the server over HTTP, and as which tenant."""
