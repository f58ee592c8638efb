"""What is sent, and how its tokens are used."""
