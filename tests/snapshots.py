"""Values that are written down in a test and can be brought up to date by inline-snapshot.

Without it, as in `make test-core`, they are compared all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inline_snapshot import snapshot as snapshot
else:
    try:
        from inline_snapshot import snapshot
    except ImportError:

        def snapshot(value):
            """The value itself."""
            return value
