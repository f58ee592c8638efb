"""A dialect sent through a provider's official SDK, and what its errors mean."""
