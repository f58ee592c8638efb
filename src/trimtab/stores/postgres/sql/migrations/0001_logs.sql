-- Sessions, their logs, and what is made from the logs.
--
-- A row of `sessions` is written when a session begins, when a turn is claimed, when a summary is
-- made and at a checkpoint, never by a plain append: the primary key of `events` is what two writers
-- meet at.

CREATE TABLE trimtab.sessions (
    id uuid PRIMARY KEY,
    -- By code point, as every other store sorts.
    name text COLLATE "C" NOT NULL UNIQUE,
    parent text COLLATE "C",
    -- The newest claimed turn.
    epoch bigint NOT NULL DEFAULT 0,
    -- The last position that is indexed in `words`, and the messages up to it.
    checkpoint integer NOT NULL DEFAULT 0,
    messages integer NOT NULL DEFAULT 0,
    summary text,
    last_summarised_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 80);

CREATE INDEX sessions_parent ON trimtab.sessions (parent) WHERE parent IS NOT NULL;

-- `body` is the event's JSON as text: jsonb refuses \u0000 and sorts keys.
CREATE TABLE trimtab.events (
    session uuid NOT NULL,
    at double precision NOT NULL,
    seq integer NOT NULL,
    kind text NOT NULL,
    key text COLLATE "C",
    body text NOT NULL,
    PRIMARY KEY (session, seq)
) PARTITION BY HASH (session);

CREATE UNIQUE INDEX events_key ON trimtab.events (session, key) WHERE key IS NOT NULL;

-- Compressed before it comes here; nothing is shared between sessions, so that deleting one is
-- deleting its rows.
CREATE TABLE trimtab.blobs (
    session uuid NOT NULL,
    digest bytea NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (session, digest)
) PARTITION BY HASH (session);

-- Not compressed twice.
ALTER TABLE trimtab.blobs ALTER COLUMN data SET STORAGE EXTERNAL;

-- The words of a message; a message with very many takes several rows. Each word begins with the
-- session's tag (the last eight digits of its id): a search walks the words of one session, not
-- those of all, which a second column of the index would make it do.
CREATE TABLE trimtab.words (
    session uuid NOT NULL,
    seq integer NOT NULL,
    chunk integer NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (session, seq, chunk)
) PARTITION BY HASH (session);

-- Every search reads the list of what is not yet in the index, so it is kept short.
CREATE INDEX words_found ON trimtab.words USING gin (words) WITH (gin_pending_list_limit = 256);

DO $$
BEGIN
    FOR remainder IN 0..15 LOOP
        EXECUTE format(
            'CREATE TABLE trimtab.events_%1$s PARTITION OF trimtab.events
                FOR VALUES WITH (MODULUS 16, REMAINDER %2$s)',
            lpad(remainder::text, 2, '0'), remainder);
        EXECUTE format(
            'CREATE TABLE trimtab.blobs_%1$s PARTITION OF trimtab.blobs
                FOR VALUES WITH (MODULUS 16, REMAINDER %2$s)',
            lpad(remainder::text, 2, '0'), remainder);
        EXECUTE format(
            'CREATE TABLE trimtab.words_%1$s PARTITION OF trimtab.words
                FOR VALUES WITH (MODULUS 16, REMAINDER %2$s)',
            lpad(remainder::text, 2, '0'), remainder);
    END LOOP;
END
$$;

CREATE TABLE trimtab.snapshots (
    session uuid NOT NULL,
    seq integer NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (session, seq)
);

-- A call to a model: begun by its event, completed by its outcome. Token counts are the provider's.
CREATE TABLE trimtab.llm_calls (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session uuid NOT NULL,
    seq integer NOT NULL,
    bytes bigint NOT NULL,
    prompt_tokens bigint,
    completion_tokens bigint,
    cache_read_tokens bigint,
    cache_write_tokens bigint,
    -- `sent` until its outcome is known.
    status text NOT NULL,
    created_at timestamptz NOT NULL,
    UNIQUE (session, seq)
);

CREATE INDEX llm_calls_created_at ON trimtab.llm_calls (created_at);

CREATE VIEW trimtab.conversation_context AS
SELECT
    sessions.id AS conversation_id,
    sessions.summary,
    sessions.messages + (
        SELECT count(*)::integer FROM trimtab.events
        WHERE events.session = sessions.id AND events.seq > sessions.checkpoint
            AND events.kind = 'message'
    ) AS message_count,
    sessions.last_summarised_at,
    -- A clock that is far off must not make the whole view unreadable.
    to_timestamp(least(greatest(last.at, -62135596800), 253402300799)) AS updated_at
FROM trimtab.sessions
LEFT JOIN LATERAL (
    SELECT events.at FROM trimtab.events
    WHERE events.session = sessions.id ORDER BY events.seq DESC LIMIT 1
) AS last ON true;
