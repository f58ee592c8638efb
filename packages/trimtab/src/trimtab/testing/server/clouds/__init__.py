"""The same simulated models at clouds: Amazon Bedrock, Azure OpenAI, Google Vertex.

A cloud has its own authentication, addresses, request formats and error texts. Otherwise the rules
of the API that it serves apply.
"""
