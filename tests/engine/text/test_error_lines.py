"""Lines that name an error, told from those that say there was none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.durations import measure_cpu_s
from trimtab.engine.text.error_lines import find_error_offset, find_possible_error_line_starts

ERRORS = [
    "error: cannot borrow `x` as mutable",
    "error[E0308]: mismatched types",
    "src/main.c:12:5: error: expected ';' before '}' token",
    "src/a.ts(1,2): error TS2345: Argument of type",
    "ERROR    root:app.py:3 it broke",
    "  12:5  error  'x' is not defined  no-undef",
    "Traceback (most recent call last):",
    "ValueError: bad thing",
    "java.lang.NullPointerException: null",
    "Caused by: java.io.IOException",
    "E       assert 1 == 2",
    "FAILED tests/test_a.py::test_b - assert 1 == 2",
    "--- FAIL: TestSync (0.05s)",
    "FAIL",
    "1 failed, 3 passed in 0.4s",
    "Found 5 errors in 2 files",
    "fatal: not a git repository",
    "thread 'main' panicked at src/main.rs:2:5:",
    "panic: runtime error: index out of range",
    "Segmentation fault (core dumped)",
    "Killed",
    "npm ERR! code ELIFECYCLE",
    "bash: foo: command not found",
    "cat: a: No such file or directory",
    "ld: undefined reference to `main'",
    "make: *** [Makefile:3: all] Error 2",
    "Process exited with code 1",
    "exit status 2",
    "Exit code: 137",
    "  ✗ renders the page",
    "0 errors, 2 warnings, 1 failed",
    '{"error": "not allowed"}',
    "##[error]Process completed with exit code 1.",
    "pkg/a.go:59:3: undefined: err (typecheck error)",
    "return code 1 is an error",
    "+ error: in what a tool printed",
]

OTHERS = [
    "",
    "all is well",
    "0 errors, 2 warnings",
    "no errors found",
    "Finished without errors.",
    "without any errors",
    "errors: 0",
    '{"error": null, "a": 1}',
    '"errors": [],',
    "error=None",
    "12 passed, 0 failed",
    "failures: 0",
    "src/error_handler.py",
    "compiling src/errors/error.rs",
    "import error.py",
    "  modified: docs/error-page.md",
    "exit code 0",
    "Process exited with code 0",
    "FAILOVER is on",
    "a failsafe, infallible default",
    "    Employee  5",
    "terror in the mirrors",
    '    59→\t\treturn fmt.Errorf("failed to open: %w", err)',
    "00012| class OddError(Exception): ...",
    '+\t\treturn fmt.Errorf("failed to open: %w", err)',
    'pkg/a.go:59:\t\tt.Fatalf("unexpected error: %v", err)',
    "src/a.py:12:    raise ValueError(number)",
    "    except ValueError:",
    "} catch (Exception e) {",
    'console.error("no")',
    "// an error is ignored here",
    "from a.b import OddError",
    " \tvar err error",
    "- `Open(path string) (int, error)` opens a file",
]


@pytest.mark.parametrize("line", ERRORS)
def test_a_line_that_names_an_error_is_found(line: str) -> None:
    assert find_possible_error_line_starts(line) == [0]
    assert find_error_offset(line) is not None


@pytest.mark.parametrize("line", OTHERS)
def test_a_line_that_names_none_is_not(line: str) -> None:
    assert find_error_offset(line) is None


@given(st.lists(st.sampled_from([*ERRORS, *OTHERS, "İ", "x" * 50])))
def test_no_error_escapes_the_hints_wherever_it_stands(lines: list[str]) -> None:
    text = "\n".join(lines)
    begins, at = set[int](), 0
    for line in lines:
        if find_error_offset(line) is not None:
            begins.add(at)
        at += len(line) + 1
    found = find_possible_error_line_starts(text)
    assert begins <= set(found)
    assert found == sorted(set(found))


@pytest.mark.parametrize(
    "text", ["error " * 170_000, "e" * 1_000_000, "no " * 330_000, "a." * 500_000]
)
def test_a_line_of_a_megabyte_is_judged_in_time(text: str) -> None:
    def judge() -> None:
        find_possible_error_line_starts(text)
        find_error_offset(text)

    assert measure_cpu_s(judge, enough_s=1) <= 1
