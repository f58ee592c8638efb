"""What is sent, and where its tokens went."""
