-- All tables: sessions with their logs, the message queue, schedules, erasures and spending.
--
-- A row of `sessions` is written when a session begins, when a turn is claimed, when a summary is
-- made and at a checkpoint, never by a plain append: two writers meet at the primary key of `events`.

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
    created_at timestamptz NOT NULL DEFAULT now(),
    -- The newest model.
    model text
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
    model text,
    -- `reply`, or `summary` for a row that stands for all requests of one summary.
    purpose text NOT NULL DEFAULT 'reply',
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

-- The message queue: messages that wait for a turn, replies to send, and dead letters.
--
-- A session is named by its id alone, by code point, so that those of one tenant are one range. Rows
-- come and go with every turn: they are vacuumed by how many are dead, not by how many there are.

CREATE TABLE trimtab.inbox (
    number bigint GENERATED ALWAYS AS IDENTITY,
    session text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    -- JSON as text: jsonb refuses \u0000 and sorts keys.
    body text NOT NULL,
    PRIMARY KEY (session, number),
    UNIQUE (session, key)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE TABLE trimtab.outbox (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session text COLLATE "C" NOT NULL,
    -- Names the session. Stays for a while after the delivery, so that the reply is sent once.
    key text COLLATE "C" NOT NULL UNIQUE,
    channel text COLLATE "C" NOT NULL,
    body text NOT NULL,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'refused')),
    attempts integer NOT NULL DEFAULT 0,
    -- Not due before this time. For a delivered or undeliverable reply, the time of that.
    due timestamptz NOT NULL DEFAULT now(),
    why text
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- Finds the oldest reply that waits without reading those that were sent, and whether it is the
-- oldest of its session.
CREATE INDEX outbox_next ON trimtab.outbox (number) WHERE state = 'waiting';
CREATE INDEX outbox_waiting ON trimtab.outbox (session, number) WHERE state = 'waiting';
CREATE INDEX outbox_done ON trimtab.outbox (state, due) WHERE state <> 'waiting';
CREATE INDEX outbox_session ON trimtab.outbox (session) WHERE state <> 'waiting';

CREATE TABLE trimtab.dead (
    session text COLLATE "C" PRIMARY KEY,
    why text NOT NULL,
    at double precision NOT NULL
);

CREATE INDEX dead_at ON trimtab.dead (at);

-- Messages that agents get at set times, and their runs.

CREATE TABLE trimtab.schedules (
    id text COLLATE "C" PRIMARY KEY,
    session text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    -- `file` or `tool`.
    origin text NOT NULL,
    -- JSON of the schedule without the next time, as text: jsonb refuses \u0000 and sorts keys.
    body text NOT NULL,
    -- Seconds since the epoch by the worker's clock. Null if it is finished.
    next_run_at double precision,
    paused boolean NOT NULL,
    -- When it was last run or skipped.
    last_run_at double precision
) WITH (fillfactor = 80);

CREATE INDEX schedules_due ON trimtab.schedules (next_run_at)
    WHERE next_run_at IS NOT NULL AND NOT paused;
CREATE INDEX schedules_session ON trimtab.schedules (session);

CREATE TABLE trimtab.schedule_runs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schedule text COLLATE "C" NOT NULL REFERENCES trimtab.schedules ON DELETE CASCADE,
    due double precision NOT NULL,
    at double precision NOT NULL,
    -- Empty if it ran.
    why text NOT NULL,
    -- If it was skipped, so were all runs that were due before this time.
    until double precision
);

CREATE INDEX schedule_runs_schedule ON trimtab.schedule_runs (schedule, number);

-- What was erased, when and by whom, without anything of the content.

CREATE TABLE trimtab.erasures (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    -- A keyed digest of a user's or a session's id; empty if there is none.
    target text COLLATE "C" NOT NULL,
    body text NOT NULL
);

CREATE INDEX erasures_tenant ON trimtab.erasures (tenant, number);

-- What the digests are keyed with: one row, made once.
CREATE TABLE trimtab.erasure_secret (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    secret bytea NOT NULL
);

INSERT INTO trimtab.erasure_secret (secret)
VALUES (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));

-- What model calls have cost, in millionths of a US dollar, for agents that have a cost ceiling.

CREATE TABLE trimtab.spending_per_day (
    agent text NOT NULL,
    -- UTC.
    day date NOT NULL,
    tenant text NOT NULL,
    micros bigint NOT NULL,
    PRIMARY KEY (agent, day, tenant)
);

CREATE TABLE trimtab.spending_per_session (
    session uuid PRIMARY KEY REFERENCES trimtab.sessions (id) ON DELETE CASCADE,
    micros bigint NOT NULL
);

-- Calls that are being made, at the most that they may cost.
CREATE TABLE trimtab.spending_reservations (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent text NOT NULL,
    day date NOT NULL,
    tenant text NOT NULL,
    session uuid NOT NULL,
    micros bigint NOT NULL,
    -- Seconds since the epoch from which its session no longer counts it: its process was killed.
    until double precision NOT NULL
);

CREATE INDEX spending_reservations_day ON trimtab.spending_reservations (agent, day);
CREATE INDEX spending_reservations_session ON trimtab.spending_reservations (session);
