"""`agent.yaml` is read, or all that is wrong with it is said."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tests.serve.agent.channel_mistakes import WRONG_CHANNELS
from tests.serve.agent.config_files import DOCUMENT_0, ENVIRON, GOOD, LEAST, folder
from tests.serve.agent.config_mistakes import WRONG as WRONG_FILES
from tests.serve.agent.tool_mistakes import WRONG_TOOLS
from trimtab_serve.agent.agent import build_policy_settings
from trimtab_serve.agent.config.loader import (
    describe_keep_results_without_policy,
    list_config_warnings,
    load_agent_spec,
    load_system_prompt,
    locate_agent_store,
)
from trimtab_serve.agent.config.problems import MAX_AGENT_FILE_BYTES, AgentFileError, TextPosition
from trimtab_serve.agent.config.schema import iterate_config_blocks
from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.agent.config.yaml_document import (
    MAX_DOCUMENT_DEPTH,
    MAX_DOCUMENT_VALUES,
    parse_yaml_collecting_problems,
)

__all__ = ["folder"]

WRONG = {**WRONG_FILES, **WRONG_TOOLS, **WRONG_CHANNELS}

FILE = Path("agent.yaml")
JARGON = re.compile(
    r"Input should|valid (?:dict|tuple|string|integer)|pydantic|validation error|\btuple\b|dict\[|"
    r"NoneType|discriminator|Traceback|<[a-z ]+>|ScalarNode|object at 0x"
)


def read(text: str, environ: dict[str, str] | None = None) -> AgentSpec:
    FILE.write_bytes(text.encode())
    return load_agent_spec(FILE, ENVIRON if environ is None else environ)


def refused(text: str | bytes) -> AgentFileError:
    FILE.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(AgentFileError) as raised:
        load_agent_spec(FILE, ENVIRON)
    return raised.value


@pytest.mark.parametrize("name", GOOD)
def test_a_good_file_is_read(name, folder):
    assert read(GOOD[name]).model.name


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_says_where_and_what_to_do(name, folder):
    text, said = WRONG[name]
    assert str(refused(text)) == said


@pytest.mark.parametrize("name", WRONG)
def test_no_word_of_the_machinery_reaches_the_user(name):
    assert not JARGON.search(str(WRONG[name][1]))


def test_every_problem_has_its_place_and_its_path(folder):
    problems = refused("colour: red\nmodel:\n  name: 5\n  params:\n    a: ${NOBODY}\n").problems
    assert [(problem.position, problem.path) for problem in problems] == [
        (TextPosition(line=1, column=1), ("colour",)),
        (TextPosition(line=3, column=9), ("model", "name")),
        (TextPosition(line=5, column=8), ("model", "params", "a")),
    ]


def test_a_reference_is_replaced_wherever_it_stands(folder):
    spec = read(
        LEAST
        + "  api_key: ${ANTHROPIC_API_KEY}\n  base_url: http://${HOST:-localhost}:${COUNT}/$${x}\n"
        "  params: {top_k: '${COUNT}', stop: [a$$b, '${COUNT}x']}\n"
        "session: {recall: '${YES}', max_tool_iterations: '${COUNT}', store: '${EMPTY:-here}'}\n"
    )
    assert spec.model.api_key == ENVIRON["ANTHROPIC_API_KEY"]
    assert spec.model.base_url == "http://localhost:12/${x}"
    assert spec.model.params == {"top_k": 12, "stop": ["a$b", "12x"]}
    session = spec.session
    assert (session.recall, session.max_tool_iterations, session.store) == (True, 12, "here")


def test_a_reference_to_nothing_with_an_empty_default_leaves_it_unset(folder):
    assert read(LEAST + "  base_url: ${PROXY:-}\n").model.base_url is None


def test_what_came_from_the_environment_is_not_read_again(folder):
    environ = {"A": "${B}", "B": "no", "C": "a: b\nc: [d"}
    spec = read(LEAST + "name: ${A}\nsystem: in ${C}\n", environ)
    assert (spec.name, spec.system) == ("${B}", "in a: b\nc: [d")


def test_names_are_as_they_are_written(folder):
    spec = read(LEAST + "  params: {on: 1, no: 2, 3: 4, null: 5}\n")
    assert spec.model.params == {"on": 1, "no": 2, "3": 4, "null": 5}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1_000", 1000),
        ("0x10", 16),
        ("-3", -3),
        ("010", "010"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        (".", "."),
        ("9" * 40, "9" * 40),
        (".inf", ".inf"),
        ("~", None),
        ("Yes", True),
        ("=", "="),
    ],
)
def test_a_scalar_is_what_a_person_would_take_it_for(written, value):
    assert parse_yaml_collecting_problems(f"a: {written}").data == {"a": value}


def test_what_is_not_a_file_of_text_is_refused(folder):
    with pytest.raises(
        AgentFileError, match=r"none\.yaml does not exist; `trimtab init` writes one"
    ):
        load_agent_spec(Path("none.yaml"), {})
    with pytest.raises(AgentFileError, match=r"\. is a folder; give the file in it: agent\.yaml"):
        load_agent_spec(Path(), {})
    assert "is larger than 1,000,000 bytes" in str(refused(b"#" * (MAX_AGENT_FILE_BYTES + 1)))
    assert str(refused("name: é".encode() + b"\xff")) == (
        "agent.yaml, line 1, column 8: the byte 0xff is not UTF-8; save the file as UTF-8"
    )


def test_a_short_text_that_explodes_is_refused_at_once(folder):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "is too large, is nested too deeply or refers to itself" in str(
        refused("\n".join(lines))
    )
    assert (
        len(parse_yaml_collecting_problems("\n".join(lines)).marks)
        <= MAX_DOCUMENT_VALUES + 10 * MAX_DOCUMENT_DEPTH
    )


@pytest.mark.parametrize("text", ["[" * 600, "a:\n" + "".join(" " * n + "a:\n" for n in range(99))])
def test_a_text_that_is_too_deep_is_refused(text, folder):
    assert len(refused(text).problems) == 1


def test_nothing_in_a_file_can_run_anything(folder):
    spec = "name: !!python/object/apply:os.system ['touch ran']\n"
    assert "which YAML reads as a type" in str(refused(LEAST + spec))
    assert not Path("ran").exists()


def scalars() -> list[tuple[str | int, ...]]:
    """Every place of one value in a file that has all settings."""
    found = parse_yaml_collecting_problems(EVERYTHING)
    return [path for path, mark in found.marks.items() if mark.written is not None]


EVERYTHING = (
    DOCUMENT_0
    + """\
  policy: rolling
  goal: cost
  store: sessions
  recall: true
  redact: [secret]
  redact_patterns: [ACC]
  summary: {window: 5, keep: 3, forced: 9, max_tokens: 90}
  thresholds: {summarise: 0.2, trim: 0.4, display: 0.1, keep: 2}
name: helper
system: Be brief.
tools:
  shell: {kind: shell, permission: ask, allow: [a], env: {A: b}, cwd: ".", timeout: 3}
  run: {kind: command, description: d, command: [a], parameters: {b: {type: string}}, env: [C]}
  tell: {kind: python, function: "a:b", on_interrupt: ask, max_output_bytes: 10}
  far: {kind: mcp, url: "http://x", headers: {A: b}, only: [z]}
"""
)


@pytest.mark.parametrize("path", scalars(), ids=lambda path: ".".join(map(str, path)))
def test_a_secret_is_in_no_message_and_in_no_repr(path, folder):
    data: Any = yaml.safe_load(EVERYTHING)
    at = data
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = "${SECRET}"
    text = yaml.safe_dump(data)
    for secret in ("hunter2hunter2", "(hunter2hunter2"):
        try:
            spec = read(text, {"SECRET": secret})
            told = f"{spec} {spec!r} {spec.model!r} {spec.session!r} {spec.tools!r}"
        except AgentFileError as error:
            told = f"{error} {error!r} {error.problems} {error.__cause__!r} {error.__context__!r}"
        assert secret not in told


def test_a_key_that_stands_in_the_file_is_not_repeated_either(folder):
    wrong = refused(LEAST + "  api_key: [sk-very-secret-000000000]\n")
    assert "secret" not in str(wrong)
    assert "secret" not in repr(read(LEAST + "  api_key: sk-very-secret-000000000\n"))


@pytest.mark.parametrize(
    ("system", "prompt"),
    [
        (None, ""),
        ("system.md", "Be *brief*.\n"),
        ("Be brief.", "Be brief."),
        ("Be brief.\nBe kind.\n", "Be brief.\nBe kind.\n"),
    ],
)
def test_the_system_prompt_is_a_file_or_the_text_itself(system, prompt, folder):
    Path("system.md").write_text("\ufeffBe *brief*.\n", encoding="utf-8")
    spec = AgentSpec.model_validate({"model": {"name": "gpt-5"}, "system": system})
    assert load_system_prompt(spec, Path()) == prompt


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\xff", "the system prompt system.md is not UTF-8, at byte 1; save it as UTF-8"),
        (
            b"a" * (MAX_AGENT_FILE_BYTES + 1),
            "the system prompt system.md is larger than 1,000,000 bytes",
        ),
        (None, "the system prompt system.md does not exist next to the agent's file; create the"),
    ],
)
def test_a_prompt_that_cannot_be_read_says_why(raw, said, folder):
    if raw is not None:
        Path("system.md").write_bytes(raw)
    assert said in str(refused(LEAST + "system: system.md\n"))


@pytest.mark.parametrize(
    ("store", "place"),
    [
        ("sessions", "/agents/sessions"),
        ("/var/kept", "/var/kept"),
        ("postgresql://user@host/name", "postgresql://user@host/name"),
        ("host=db dbname=kept", "host=db dbname=kept"),
    ],
)
def test_a_store_is_a_folder_beside_the_file_or_a_database(store, place):
    spec = AgentSpec.model_validate({"model": {"name": "gpt-5"}, "session": {"store": store}})
    assert locate_agent_store(spec, Path("/agents")) == place


def test_what_works_but_is_hardly_meant_is_a_hint(folder):
    FILE.write_text(
        LEAST + "  api_key: abc\nsession:\n  store: postgresql://me:word@host/x\n  summary:\n"
        "    keep: 3\n    max_tokens: 90\n  thresholds:\n    display: 0.5\n    trim: 0.8\n"
        "tools:\n  far:\n    kind: mcp\n    url: x\n    headers:\n"
        "      Authorization: Bearer sk-000000000000000000000000\n",
        encoding="utf-8",
    )
    told = list_config_warnings(FILE)
    assert [hint.split(" contains")[0].split(" has no")[0] for hint in told] == [
        "line 3: model.api_key",
        "line 5: session.store",
        "line 17: tools.far.headers.Authorization",
        "line 7: session.summary.keep",
        "line 11: session.thresholds.trim",
    ]
    assert "abc" not in "".join(told)
    assert "word@" not in "".join(told)


@pytest.mark.parametrize("name", ["the least", "document 0", "every kind of tool"])
def test_an_ordinary_file_gives_no_hint(name, folder):
    FILE.write_text(GOOD[name], encoding="utf-8")
    assert list_config_warnings(FILE) == []


KEEPS = "session:\n  context:\n    tool_result_keep_last: "


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD["document 0"], "tool_result_keep_first and tool_result_keep_last are set without"),
        (f"{LEAST}{KEEPS}5\n", "tool_result_keep_last is set without a policy, so `auto` decides"),
        (f"{LEAST}{KEEPS}0\n", ""),
        (f"{LEAST}{KEEPS}5\n  policy: auto\n", ""),
        (f"{LEAST}{KEEPS}5\n  policy: layered\n", ""),
        (LEAST, ""),
    ],
)
def test_a_file_for_masks_at_every_call_that_runs_under_auto_is_remarked_on(text, told, folder):
    FILE.write_text(text, encoding="utf-8")
    note = describe_keep_results_without_policy(load_agent_spec(FILE, ENVIRON))
    assert note.startswith(told)
    assert bool(note) == bool(told) == ("`policy: layered`" in note)


def test_a_threshold_of_compact_has_no_effect_elsewhere(folder):
    own = f"{LEAST}session:\n  context: {{max_context_bytes: 9000}}\n"
    FILE.write_text(own, encoding="utf-8")
    [told] = list_config_warnings(FILE)
    assert "session.context.max_context_bytes has no effect under the policy auto" in told
    FILE.write_text(f"{own}  policy: compact\n", encoding="utf-8")
    assert list_config_warnings(FILE) == []
    assert build_policy_settings(load_agent_spec(FILE, ENVIRON)) == {"max_context_bytes": 9000}


NAMES = sorted({name for _, shape in iterate_config_blocks() for name in shape["properties"]})
WORDS = st.sampled_from(
    [*NAMES, "shell", "mcp", "auto", "25", "0.5", "on", "${X}", "${X:-1}", "$$"]
)
VALUES = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=12,
)
SIGNS = st.sampled_from(list("\t:-[]{}&*!|>'\"%@`#,? \n\0\ufeffé"))


@st.composite
def bent(draw) -> str:
    """A good file with some signs changed, and some lines taken out or put twice."""
    text = draw(st.sampled_from([*GOOD.values(), EVERYTHING]))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(SIGNS) + text[at + draw(st.integers(0, 3)) :]
    lines = text.splitlines(keepends=True) or [""]
    at = draw(st.integers(0, len(lines) - 1))
    lines[at : at + 1] = lines[at : at + 1] * draw(st.integers(0, 2))
    return "".join(lines)


TEXTS = (
    st.text()
    | bent()
    | st.dictionaries(WORDS, VALUES, max_size=6).map(yaml.safe_dump)
    | VALUES.map(lambda data: yaml.safe_dump({"model": {"name": "gpt-5"}, "tools": {"a": data}}))
)


@given(text=TEXTS)
@example(text='"\\Uffffffff"')
@example(text="model: {name: a, params: {? [b] : c}}")
@example(text="&a a: &b [*a, *b]")
@example(text="<<: [{a: 1}, 2]")
@example(text="a: &a\n  <<: *a\n")
@example(text="model: {name: a}\nsesion:\n")
@example(text="model:\n  name: \ud800")
def test_any_text_is_an_agent_or_an_error_that_a_person_can_read(text, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "agent.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        read = load_agent_spec(path, {"X": "3"})
    except AgentFileError as error:
        read = error
    if isinstance(read, AgentFileError):
        assert read.problems
        assert [problem for problem in read.problems if JARGON.search(problem.text)] == []
    else:
        assert isinstance(read, AgentSpec)
