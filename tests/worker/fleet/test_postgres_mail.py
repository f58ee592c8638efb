"""What every mail promises, of the one in PostgreSQL."""

from tests.worker.test_mail import *  # noqa: F403 - the whole suite
