"""Ways in from outside: HTTP and chat platforms. They post letters and have no budget logic."""
