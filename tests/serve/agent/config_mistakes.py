"""Files that a newcomer gets wrong, each with all that is said about it."""

from tests.serve.agent.config_files import LEAST, TOOLS
from tests.snapshots import snapshot

SESSION = LEAST + "session:\n"

WRONG = {
    "parameters that are settings": (
        LEAST + "  params:\n    max_tokens: 500\n    stream: true\n",
        snapshot(
            "agent.yaml has 2 problems:\n  line 4, column 5: model.params.max_tokens cannot be "
            "set here; set model.max_output_tokens\n  line 5, column 5: model.params.stream "
            "cannot be set here; remove it: replies are always streamed"
        ),
    ),
    "history at the provider": (
        LEAST + "  params:\n    extra_body: {thread: {type: create}}\n",
        snapshot(
            "agent.yaml, line 4, column 18: model.params.extra_body.thread cannot be set here: the "
            "provider would add its own history, but Trimtab always sends the whole history; "
            "remove it"
        ),
    ),
    "a wrong type, an invalid value and a setting that does not exist, in three blocks": (
        SESSION + "  redact_patterns: ['(']\n  goal: cheap\ntelegram: {token: x, colour: red}\n",
        snapshot(
            "agent.yaml has 4 problems:\n  line 4, column 21: session.redact_patterns[1] is not a "
            "regular expression: missing ), unterminated subpattern\n  line 5, column 9: "
            'session.goal is "cheap"; it must be one of cost, balanced, quality or a number more '
            "than 0\n  line 6, column 12: telegram.token is not a valid bot token, such as "
            "123456:ABC-def; get one from @BotFather and write `${TELEGRAM_TOKEN}` here\n  line 6, "
            "column 22: telegram.colour is not a known setting here; telegram accepts token, "
            "webhook, secret, allow, deny, groups, rules, max_file_bytes, stream, api"
        ),
    ),
    "an empty file": (
        "",
        snapshot("agent.yaml is empty; `trimtab init` writes one that works"),
    ),
    "a list": (
        "- model\n- session\n",
        snapshot(
            "agent.yaml is a list; it must consist of names with values, such as `model:` with "
            "`name: …` indented below it, and a space after each `:`"
        ),
    ),
    "no space after the colon": (
        "model:name\n",
        snapshot(
            "agent.yaml is one text; it must consist of names with values, such as `model:` "
            "with `name: …` indented below it, and a space after each `:`"
        ),
    ),
    "a tab": (
        "model:\n\tname: gpt-5\n",
        snapshot(
            "agent.yaml, line 2, column 1: there is a tab, but YAML needs spaces; indent with "
            "two spaces for each level"
        ),
    ),
    "an open bracket": (
        LEAST + "tools: [\n",
        snapshot("agent.yaml, line 3, column 1: a `[` or `{` is not closed"),
    ),
    "an open quote": (
        'model:\n  name: "gpt-5\nsession:\n  store: s\n',
        snapshot(
            "agent.yaml, line 4, column 1: a quotation mark is not closed; it was opened on line 2"
        ),
    ),
    "a colon in a text": (
        LEAST + "system: Note: be brief\n",
        snapshot(
            "agent.yaml, line 3, column 13: a `:` is not allowed here; put the text in quotes, "
            "or indent it like the lines around it"
        ),
    ),
    "a text that begins with an asterisk": (
        TOOLS + "  shell:\n    kind: shell\n    deny: [*sudo*]\n",
        snapshot(
            "agent.yaml, line 6, column 17: a text cannot begin with `&` or `*`, which "
            "YAML reads as references; put it in quotes"
        ),
    ),
    "a text that begins with a backtick": (
        LEAST + "system: `be brief`\n",
        snapshot(
            "agent.yaml, line 3, column 9: a text cannot begin with ` in YAML; put it in quotes"
        ),
    ),
    "a text that begins with an exclamation mark": (
        LEAST + "system: !be brief\n",
        snapshot(
            "agent.yaml, line 3, column 9: system begins with `!be`, which YAML reads as a "
            "type; put the text in quotes"
        ),
    ),
    "a crooked indentation": (
        "model:\n  name: gpt-5\n   provider: openai\n",
        snapshot(
            "agent.yaml, line 3, column 12: a `:` is not allowed here; put the text in quotes, "
            "or indent it like the lines around it"
        ),
    ),
    "a line too far left": (
        "model:\n    name: gpt-5\n  provider: openai\n",
        snapshot(
            "agent.yaml, line 3, column 3: this line is not indented like the lines around it; "
            "align all names of a block"
        ),
    ),
    "two documents": (
        LEAST + "---\n" + LEAST,
        snapshot(
            "agent.yaml, line 3, column 1: a second document begins here, after `---`; "
            "keep one agent in one file"
        ),
    ),
    "a name twice": (
        "model:\n  name: gpt-5\n  timeout: 5\n  name: gpt-4o\n",
        snapshot(
            "agent.yaml, line 4, column 3: model.name is set twice, first on line 2; keep one"
        ),
    ),
    "a reference in brackets without quotes": (
        TOOLS + "  s: {kind: mcp, url: x, headers: {A: ${KEY}}}\n",
        snapshot(
            "agent.yaml, line 4, column 40: inside [ ] and { } a reference must be in quotes: "
            '["${NAME}"]'
        ),
    ),
    "a text that contains itself": (
        LEAST + "session: &a\n  context: *a\n",
        snapshot(
            "agent.yaml, line 3, column 10: session.context is too large, is nested too "
            "deeply or refers to itself; use fewer references (`*name`)"
        ),
    ),
    "a control character": (
        LEAST + "system: be\u0007 brief\n",
        snapshot(
            "agent.yaml, line 3, column 11: the character U+0007 is not allowed in YAML; delete it"
        ),
    ),
    "no model": (
        "name: helper\n",
        snapshot(
            "agent.yaml, line 1, column 1: model is missing; write `model: ` with the model's name"
        ),
    ),
    "a model without a name": (
        "model:\n  provider: openai\n",
        snapshot(
            "agent.yaml, line 1, column 1: model.name is missing; write a text: the model's "
            "name at its provider"
        ),
    ),
    "a model as a list": (
        "model: [claude-sonnet-4-5]\n",
        snapshot(
            "agent.yaml, line 1, column 8: model is a list; it must be a text or a block of "
            "settings"
        ),
    ),
    "a misspelt block": (
        LEAST + "sesion:\n  policy: auto\n",
        snapshot(
            "agent.yaml, line 3, column 1: sesion is not a known setting here; did you mean "
            "session?"
        ),
    ),
    "a misspelt block with nothing in it": (
        LEAST + "sesion:\n",
        snapshot(
            "agent.yaml, line 3, column 1: sesion is not a known setting here; did you mean "
            "session?"
        ),
    ),
    "a merge of nothing": (
        TOOLS + "  shell:\n    kind: shell\n    <<: common\n",
        snapshot(
            "agent.yaml, line 6, column 5: tools.shell has a `<<` without a block; write "
            "`<<: *name`"
        ),
    ),
    "a misspelt setting": (
        SESSION + "  context:\n    max_tool_result_token: 8000\n",
        snapshot(
            "agent.yaml, line 5, column 5: session.context.max_tool_result_token is not a "
            "known setting here; did you mean max_tool_result_tokens?"
        ),
    ),
    "a name in camel case": (
        "model:\n  name: gpt-5\n  maxInputTokens: 9000\n",
        snapshot(
            "agent.yaml, line 3, column 3: model.maxInputTokens is not a known setting here; "
            "did you mean max_input_tokens?"
        ),
    ),
    "a setting of the model at the top": (
        LEAST + "max_input_tokens: 9000\n",
        snapshot(
            "agent.yaml, line 3, column 1: max_input_tokens is not a known setting here; it "
            "belongs under model"
        ),
    ),
    "a setting of the model under session": (
        SESSION + "  max_input_tokens: 9000\n",
        snapshot(
            "agent.yaml, line 4, column 3: session.max_input_tokens is not a known setting "
            "here; it belongs under model"
        ),
    ),
    "a setting of two blocks under session": (
        SESSION + "  keep: 5\n",
        snapshot(
            "agent.yaml, line 4, column 3: session.keep is not a known setting here; it "
            "belongs under session.context or under session.summary or under session.thresholds"
        ),
    ),
    "a block at the top that belongs elsewhere": (
        LEAST + "context:\n  max_history_tokens: 0\n",
        snapshot(
            "agent.yaml, line 3, column 1: context is not a known setting here; it belongs "
            "under session"
        ),
    ),
    "a parameter of the request": (
        LEAST + "  temperature: 0.2\n",
        snapshot(
            "agent.yaml, line 3, column 3: model.temperature is not a known setting here; it "
            "belongs under model.params"
        ),
    ),
    "another system's name": (
        LEAST + "  max_tokens: 5000\n",
        snapshot(
            "agent.yaml, line 3, column 3: model.max_tokens is not a known setting here; did "
            "you mean max_output_tokens?"
        ),
    ),
    "another system's servers": (
        LEAST + "mcpServers:\n  a: {command: b}\n",
        snapshot(
            "agent.yaml, line 3, column 1: mcpServers is not a known setting here; a server is "
            "a tool: it belongs under tools, with `kind: mcp`"
        ),
    ),
    "a name that nobody knows": (
        LEAST + "colour: red\n",
        snapshot(
            "agent.yaml, line 3, column 1: colour is not a known setting here; the top accepts "
            "name, model, system, session, cost, tools, serve, telegram, discord, schedules"
        ),
    ),
    "a number in quotes": (
        SESSION + '  max_tool_iterations: "25"\n',
        snapshot(
            'agent.yaml, line 4, column 24: session.max_tool_iterations is "25"; it must '
            "be a whole number, 1 or more; write 25"
        ),
    ),
    "a number with a letter": (
        SESSION + "  context:\n    max_history_tokens: 20k\n",
        snapshot(
            'agent.yaml, line 5, column 25: session.context.max_history_tokens is "20k"; '
            "it must be a whole number, 0 or more; write 20000"
        ),
    ),
    "a number with a comma": (
        LEAST + "  max_input_tokens: 150,000\n",
        snapshot(
            'agent.yaml, line 3, column 21: model.max_input_tokens is "150,000"; it must '
            "be a whole number, 1 or more; write 150000"
        ),
    ),
    "a broken number": (
        SESSION + "  max_tool_iterations: 2.5\n",
        snapshot(
            "agent.yaml, line 4, column 24: session.max_tool_iterations is 2.5; it must be "
            "a whole number, 1 or more"
        ),
    ),
    "a zero where there must be some": (
        SESSION + "  context:\n    max_tool_result_tokens: 0\n",
        snapshot(
            "agent.yaml, line 5, column 29: session.context.max_tool_result_tokens is 0; "
            "it must be a whole number, 1 or more"
        ),
    ),
    "a file in an envelope": (
        "apiVersion: v1\nkind: Agent\nmetadata: {name: helper}\nspec:\n  model: {name: gpt-4o}\n",
        snapshot(
            "agent.yaml, line 4, column 1: spec is not needed here: move everything below it to "
            "the top of the file, and replace apiVersion, kind, metadata by `name: helper`"
        ),
    ),
    "a limit in two units": (
        SESSION + "  context: {max_tool_result_tokens: 9, max_tool_result_chars: 36}\n",
        snapshot(
            "agent.yaml, line 4, column 13: session.context.max_tool_result_tokens is 9 and "
            "max_tool_result_chars is 36; set only one of them"
        ),
    ),
    "a percentage": (
        SESSION + "  thresholds:\n    trim: 90%\n",
        snapshot(
            'agent.yaml, line 5, column 11: session.thresholds.trim is "90%"; it must be a '
            "number more than 0 and at most 1; write 0.9"
        ),
    ),
    "a choice that is none": (
        SESSION + "  policy: automatic\n",
        snapshot(
            'agent.yaml, line 4, column 11: session.policy is "automatic"; did you mean '
            "auto? Choose one of full, layered, compact, rolling, thresholds, auto"
        ),
    ),
    "a choice that YAML takes for a truth": (
        SESSION + "  on_disconnect: off\n",
        snapshot(
            "agent.yaml, line 4, column 18: session.on_disconnect is off, which YAML reads "
            "as false; choose one of pause, continue"
        ),
    ),
    "a provider by another name": (
        LEAST + "  provider: google\n",
        snapshot(
            'agent.yaml, line 3, column 13: model.provider is "google"; did you mean '
            "gemini? Choose one of anthropic, openai, openai_responses, ollama, "
            "openrouter, deepseek, gemini, groq, mistral, xai, vllm, llama.cpp, bedrock, "
            "azure, azure_responses, vertex"
        ),
    ),
    "a name that is a number": (
        "model:\n  name: 4.1\n",
        snapshot(
            "agent.yaml, line 2, column 9: model.name is 4.1; it must be a text; put it in "
            'quotes: "4.1"'
        ),
    ),
    "a name that YAML takes for a truth": (
        LEAST + "name: no\n",
        snapshot(
            "agent.yaml, line 3, column 7: name is no, which YAML reads as false; it must "
            'be a text; put it in quotes: "no"'
        ),
    ),
    "a key that is a number": (
        LEAST + "  api_key: 12345678\n",
        snapshot(
            "agent.yaml, line 3, column 12: model.api_key is a value that YAML reads as a "
            "number, or as true or false; it must be a text; put it in quotes"
        ),
    ),
    "neither true nor false": (
        SESSION + "  recall: sometimes\n",
        snapshot(
            'agent.yaml, line 4, column 11: session.recall is "sometimes"; it must be true or false'
        ),
    ),
    "one text where a list must be": (
        SESSION + "  redact: email\n",
        snapshot(
            'agent.yaml, line 4, column 11: session.redact is "email"; it must be a list '
            'of texts; write ["email"]'
        ),
    ),
    "a pattern that is none": (
        SESSION + "  redact_patterns: [ACC, '(']\n",
        snapshot(
            "agent.yaml, line 4, column 26: session.redact_patterns[2] is not a regular "
            "expression: missing ), unterminated subpattern"
        ),
    ),
    "a proxy by its name": (
        LEAST + "serve: {trusted_proxies: [10.0.0.7, 10.1.0.0/16, proxy.local]}\n",
        snapshot(
            "agent.yaml, line 3, column 50: serve.trusted_proxies[3] must be an address or a "
            "network, such as 10.0.0.7 or 10.1.0.0/16"
        ),
    ),
    "a misspelt name of what to redact": (
        SESSION + "  redact: [card, emails]\n",
        snapshot(
            'agent.yaml, line 4, column 18: session.redact[2] is "emails"; did you mean '
            "email? Choose one of email, iban, card, secret; your own patterns belong "
            "into redact_patterns"
        ),
    ),
    "an expression among the names of what to redact": (
        SESSION + "  redact: ['ACC-[0-9]+']\n",
        snapshot(
            'agent.yaml, line 4, column 12: session.redact[1] is "ACC-[0-9]+"; choose one'
            " of email, iban, card, secret; your own patterns belong into redact_patterns"
        ),
    ),
    "more kept than the window holds": (
        SESSION + "  summary:\n    keep: 20\n",
        snapshot(
            "agent.yaml, line 5, column 5: session.summary.keep is 20 and summary.window "
            "is 15; summary.keep must be smaller"
        ),
    ),
    "a summary before the trim": (
        SESSION + "  thresholds:\n    summarise: 0.95\n",
        snapshot(
            "agent.yaml, line 5, column 5: session.thresholds.summarise is 0.95 and "
            "thresholds.trim is 0.9; thresholds.summarise must be smaller"
        ),
    ),
    "a variable that is not set": (
        LEAST + "  api_key: ${OPENAI_API_KEY}\n",
        snapshot(
            "agent.yaml, line 3, column 12: model.api_key refers to ${OPENAI_API_KEY}, "
            "which is not set; run `export OPENAI_API_KEY=…` first"
        ),
    ),
    "a misspelt variable": (
        LEAST + "  api_key: ${ANTROPIC_API_KEY}\n",
        snapshot(
            "agent.yaml, line 3, column 12: model.api_key refers to ${ANTROPIC_API_KEY}, "
            "which is not set, but ${ANTHROPIC_API_KEY} is; write that, or run `export "
            "ANTROPIC_API_KEY=…` first"
        ),
    ),
    "an empty variable": (
        LEAST + "  api_key: ${EMPTY}\n",
        snapshot(
            "agent.yaml, line 3, column 12: model.api_key refers to ${EMPTY}, which is "
            "empty; run `export EMPTY=…` first"
        ),
    ),
    "half a reference": (
        LEAST + "  api_key: ${ANTHROPIC_API_KEY\n",
        snapshot(
            "agent.yaml, line 3, column 12: model.api_key has a `${` that does not begin a "
            "valid reference; write ${NAME} or ${NAME:-default}, or $${ for a literal ${"
        ),
    ),
    "a variable that holds no number": (
        SESSION + "  max_tool_iterations: ${ANTHROPIC_API_KEY}\n",
        snapshot(
            "agent.yaml, line 4, column 24: session.max_tool_iterations is "
            "${ANTHROPIC_API_KEY}, and its value in the environment is not valid here; it must "
            "be a whole number, 1 or more"
        ),
    ),
    "a prompt that is not there": (
        LEAST + "system: prompts/system.md\n",
        snapshot(
            "agent.yaml, line 3, column 9: the system prompt prompts/system.md does not exist "
            "next to the agent's file; create the file, or write the prompt itself: a line of "
            "several words, or text after `system: |`"
        ),
    ),
    "a cost ceiling for a model without a price": (
        "model:\n  name: homemade-1\ncost:\n  max_per_day: 5\n",
        snapshot(
            "agent.yaml, line 3, column 1: cost: the price of homemade-1 is unknown, so no "
            "cost ceiling can be enforced; set `input_price` and `output_price` in "
            "`model.model_info`, in US dollars per million tokens"
        ),
    ),
    "a cost ceiling of nothing, and one in quotes": (
        LEAST + "cost:\n  max_per_day: 0\n  max_per_session: '2'\n",
        snapshot(
            "agent.yaml has 2 problems:\n  line 4, column 16: cost.max_per_day is 0; it must "
            'be a number more than 0\n  line 5, column 20: cost.max_per_session is "2"; it '
            "must be a number more than 0; write 2"
        ),
    ),
    "a sandbox that is not known": (
        TOOLS + "  shell: {kind: shell, sandbox: always, sandbox_network: 'no'}\n",
        snapshot(
            'agent.yaml has 2 problems:\n  line 4, column 33: tools.shell.sandbox is "always"; '
            "choose one of auto, required, off\n  line 4, column 58: "
            'tools.shell.sandbox_network is "no"; it must be true or false'
        ),
    ),
    "three problems": (
        (
            "model:\n  name: gpt-5\n  max_input_token: 9\n  api_key: ${NOBODY}\nsession:\n"
            "  context:\n    max_tool_result_tokens: 8k\n"
        ),
        snapshot(
            "agent.yaml has 3 problems:\n  line 3, column 3: model.max_input_token is not a "
            "known setting here; did you mean max_input_tokens?\n  line 4, column 12: "
            "model.api_key refers to ${NOBODY}, which is not set; run `export NOBODY=…` "
            'first\n  line 7, column 29: session.context.max_tool_result_tokens is "8k"; it '
            "must be a whole number, 1 or more; write 8000"
        ),
    ),
}
