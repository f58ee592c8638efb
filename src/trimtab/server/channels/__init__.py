"""Ways in and out: HTTP and chat platforms. They post messages and have no budget logic."""
