"""A strict provider on a local port: Anthropic Messages, OpenAI Chat Completions and Responses.

It counts with a real tokenizer, refuses what the real ones refuse, in their words, keeps a prompt
cache, does what a script says and records what it received. Needs the extra `testing`.
"""

from trimtab.testing.server.faults import FAULTS as FAULTS
from trimtab.testing.server.faults import OTHERS as OTHERS
from trimtab.testing.server.faults import OVERFLOWS as OVERFLOWS
from trimtab.testing.server.faults import Fault as Fault
from trimtab.testing.server.options import Options as Options
from trimtab.testing.server.records import Record as Record
from trimtab.testing.server.serving import Remote as Remote
from trimtab.testing.server.serving import Served as Served
from trimtab.testing.server.serving import serve as serve
from trimtab.testing.server.serving import serve_process as serve_process
from trimtab.testing.server.simulator import Simulator as Simulator

__all__ = [
    "FAULTS",
    "OTHERS",
    "OVERFLOWS",
    "Fault",
    "Options",
    "Record",
    "Remote",
    "Served",
    "Simulator",
    "serve",
    "serve_process",
]
