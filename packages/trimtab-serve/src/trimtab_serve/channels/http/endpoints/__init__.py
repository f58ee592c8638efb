"""One function for each operation of the HTTP API."""
