"""An agent whose model is at a cloud: from the file to a reply, and what `doctor` says of it."""

from __future__ import annotations

import pytest

from tests.providers.clouds import ENVIRON, HAIKU, NOVA
from tests.simulators.clouds.local_server import serve_simulated_clouds
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab_serve import load_agent_spec, open_agent
from trimtab_serve.agent.agent import build_context_options, find_summary_writing_model
from trimtab_serve.cli.chat.turn_errors import describe_turn_error
from trimtab_serve.cli.doctor.checks import run_agent_checks
from trimtab_serve.cli.init.files import CLOUD_SETUP_COMMANDS, build_agent_files
from trimtab_serve.cli.init.model_choice import choose_model

pytestmark = pytest.mark.anyio

AGENTS = {
    "bedrock": f'provider: bedrock\n  name: "{HAIKU}"\n  base_url: "%s"',
    "bedrock_converse": f'provider: bedrock\n  name: "{NOVA}"\n  base_url: "%s"',
    "azure": 'provider: azure\n  name: my-deployment\n  base_url: "%s"\n'
    "  model_info: {context_window: 64000, tokenizer: o200k_base}",
    "azure_responses": 'provider: azure_responses\n  name: my-deployment\n  base_url: "%s"\n'
    "  model_info: {base_model: gpt-5}",
    "vertex": 'provider: vertex\n  name: claude-sonnet-5-5\n  base_url: "%s/v1"\n'
    "  api_key: google-token",
}


AZURE_KEY = dict.fromkeys(("azure", "azure_responses"), "AZURE_OPENAI_API_KEY")


@pytest.fixture(scope="module")
def served():
    with serve_simulated_clouds() as started:
        yield started


@pytest.fixture(params=AGENTS)
def name(request):
    return request.param


@pytest.fixture
def folder(name, served, tmp_path):
    served.simulator.reset()
    text = f"model:\n  {AGENTS[name] % served.url}\nsystem: You help.\n"
    (tmp_path / "agent.yaml").write_text(text, encoding="utf-8")
    return tmp_path


async def test_an_agent_answers_through_its_cloud(name, served, folder):
    served.simulator.script.set_replies(["Good morning."])
    spec = load_agent_spec(folder / "agent.yaml")
    async with open_agent(spec, folder, environ=ENVIRON) as agent:
        session = await agent.open_session("first")
        ended = await agent.run_turn(session, {"role": "user", "content": "Hello"})
        await session.close()
    assert ended.reason == "done"
    [record] = served.simulator.records.requests
    assert (record.dialect, record.fate) == (name, "answered")


async def test_the_doctor_asks_the_cloud_for_a_word(name, served, folder):
    served.simulator.script.set_replies([], otherwise="Yes.")
    file = folder / "agent.yaml"
    findings = [one async for one in run_agent_checks(file, folder, ENVIRON, offline=False)]
    told = {one.about: one for one in findings}
    assert [one for one in findings if one.state == "bad"] == []
    assert told["provider"].text == "it answers and accepts the key"
    assert served.simulator.stats()["answered"] == 1
    if name.startswith("bedrock"):
        assert told["key"].text == "found credentials: AWS_ACCESS_KEY_ID"
        assert "boto3" in told["packages"].text
    if name == "vertex":
        assert "google-auth" in told["packages"].text


async def test_the_doctor_says_which_credentials_were_refused(served, folder, name):
    served.simulator.configure(api_keys=("another",))
    try:
        file = folder / "agent.yaml"
        findings = [one async for one in run_agent_checks(file, folder, ENVIRON, offline=False)]
    finally:
        served.simulator.configure(api_keys=())
    told = next(one for one in findings if one.about == "provider")
    where = {**AZURE_KEY, "vertex": "model.api_key"}
    assert (told.state, told.text.startswith("the key was refused")) == ("bad", True)
    assert where.get(name, "AWS_ACCESS_KEY_ID") in told.next


async def test_a_deployment_of_any_name_is_known_by_model_info(folder, name):
    spec = load_agent_spec(folder / "agent.yaml")
    info = build_context_options(spec, "", "openai_chat")["model_info"]
    own = {"context_window": 64_000, "tokenizer": "o200k_base"}
    told = {
        "azure": {"output_param": "max_completion_tokens", **own},
        "azure_responses": {"base_model": "gpt-5"},
    }
    assert info == told.get(name, {})


async def test_summaries_are_asked_of_the_model_that_is_enabled(folder, name):
    del name
    text = (folder / "agent.yaml").read_text(encoding="utf-8")
    (folder / "agent.yaml").write_text(f"{text}session: {{policy: rolling}}\n", encoding="utf-8")
    spec = load_agent_spec(folder / "agent.yaml")
    assert find_summary_writing_model(spec) == spec.model.name


def test_a_refused_key_in_a_chat_names_the_clouds_own_variables(folder, name):
    spec = load_agent_spec(folder / "agent.yaml")
    error = ProviderError(ProviderFailureDetails(kind="auth", message="no", status=403))
    told = describe_turn_error(error, spec.model)
    assert told is not None
    words = {**AZURE_KEY, "vertex": "api_key"}
    assert words.get(name, "AWS_ACCESS_KEY_ID") in told.prompt_hint


@pytest.mark.parametrize("cloud", CLOUD_SETUP_COMMANDS)
def test_init_writes_an_agent_for_a_cloud(cloud, tmp_path):
    named = "my-deployment" if cloud in AZURE_KEY else None
    choice = choose_model({}, provider=cloud, model=named)
    files = build_agent_files("helper", choice)
    for file, text in files.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    spec = load_agent_spec(tmp_path / "agent.yaml")
    assert spec.model.provider == cloud
    # What is commented out is also right.
    bare = files["agent.yaml"].replace("  # region", "  region").replace("  # project", "  project")
    bare = bare.replace("  # base_url", "  base_url").replace("  # model_info", "  model_info")
    (tmp_path / "agent.yaml").write_text(bare, encoding="utf-8")
    assert load_agent_spec(tmp_path / "agent.yaml").model != spec.model
