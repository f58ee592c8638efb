"""The same simulated models as clouds serve them: Amazon Bedrock, Azure OpenAI, Google Vertex.

A cloud checks who asks in its own way, takes requests at addresses and in forms of its own, and
tells errors in its own words. In between the rules are those of the API that it serves.
"""
