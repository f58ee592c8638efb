"""What `docs/schedules.md` shows can be served."""

import re
from pathlib import Path

from tests.serve.schedules.places import at
from trimtab_serve.agent.config.loader import load_agent_spec
from trimtab_serve.schedules.config_sync import build_schedule_from_config

PAGE = (Path(__file__).parents[3] / "docs/schedules.md").read_text(encoding="utf-8")


def test_the_agent_of_the_page_has_the_schedules_that_the_page_lists(tmp_path):
    (file, _) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "agent.yaml"
    path.write_text(file, encoding="utf-8")
    spec = load_agent_spec(path, {"ANTHROPIC_API_KEY": "key", "TELEGRAM_TOKEN": "1:a"})
    now = at("2026-11-15 12:00")
    made = [
        build_schedule_from_config(spec.name, name, block, now=now)
        for name, block in spec.schedules.items()
    ]
    assert [(one.name, one.next_run_at) for one in made] == [
        ("morning", at("2026-11-16 08:00")),
        ("taxes", at("2027-03-31 09:00")),
    ]
    listed = re.findall(r"^(\w+) +helper .*?  (telegram:\d+) ", PAGE, re.MULTILINE)
    routes = [one.route.address["chat"] if one.route else "–" for one in made]
    assert listed == [
        (one.name, f"telegram:{chat}") for one, chat in zip(made, routes, strict=True)
    ]
