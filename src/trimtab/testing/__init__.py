"""What users' own tests need: a store in memory, a scripted provider, and a strict server.

The server is `trimtab.testing.server`; it is not imported here, for it needs the extra `testing`.
"""

from trimtab.testing.answer import Answer as Answer
from trimtab.testing.answer import Call as Call
from trimtab.testing.memory import MemoryStore as MemoryStore
from trimtab.testing.scripted import Broken as Broken
from trimtab.testing.scripted import NoReplyLeft as NoReplyLeft
from trimtab.testing.scripted import RequestRefused as RequestRefused
from trimtab.testing.scripted import ScriptedProvider as ScriptedProvider

__all__ = [
    "Answer",
    "Broken",
    "Call",
    "MemoryStore",
    "NoReplyLeft",
    "RequestRefused",
    "ScriptedProvider",
]
