"""The same simulated models at clouds: Amazon Bedrock, Azure OpenAI, Google Vertex.

A cloud has its own authentication, addresses, request formats, stream formats and error texts.
Signatures of AWS are checked. Otherwise the rules of the API that it serves apply.
"""
