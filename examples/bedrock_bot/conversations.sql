-- Your own table of conversations, and what the bot knows of each.
--
-- `trimtab.conversation_context` has the summary of each session and how many messages it has. The
-- name of a session is in `trimtab.sessions`: the tenant, the agent, and `telegram:` with the id of
-- the chat.
CREATE TABLE IF NOT EXISTS agent_conversations (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    telegram_chat bigint NOT NULL UNIQUE,
    owner text NOT NULL
);

CREATE OR REPLACE VIEW agent_conversation_context AS
SELECT
    agent_conversations.id,
    agent_conversations.owner,
    context.summary,
    context.message_count,
    context.last_summarised_at,
    context.updated_at,
    (
        SELECT sum(calls.prompt_tokens) FROM trimtab.llm_calls AS calls
        WHERE calls.session = sessions.id
    ) AS prompt_tokens
FROM agent_conversations
JOIN trimtab.sessions
    ON sessions.name = 'default/bot/telegram:' || agent_conversations.telegram_chat
JOIN trimtab.conversation_context AS context ON context.conversation_id = sessions.id;
