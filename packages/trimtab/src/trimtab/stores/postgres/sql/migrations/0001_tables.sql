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
    model text,
    -- When the newest turn was claimed, or the session began: seconds by the session's clock. A
    -- turn within ten seconds changes nothing.
    active_at double precision NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX sessions_parent ON trimtab.sessions (parent) WHERE parent IS NOT NULL;
-- The sessions of a folder (the id up to its last slash) by recency.
CREATE INDEX sessions_active
    ON trimtab.sessions (regexp_replace(name, '[^/]*$', ''), active_at, name);

-- `body` is the event's JSON as text: jsonb refuses \u0000 and sorts keys.
CREATE TABLE trimtab.events (
    session uuid NOT NULL,
    at double precision NOT NULL,
    seq integer NOT NULL,
    kind text NOT NULL,
    key text COLLATE "C",
    body text NOT NULL,
    -- A hash of a message's sender, or of the session that a fork was copied from. It is in the row
    -- of the event, so nothing can be in the log without it.
    subject bigint,
    PRIMARY KEY (session, seq)
) PARTITION BY HASH (session);

CREATE INDEX events_subject ON trimtab.events (subject, session) WHERE subject IS NOT NULL;
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

CREATE TABLE trimtab.snapshots (
    session uuid NOT NULL,
    seq integer NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (session, seq)
) PARTITION BY HASH (session);

-- A call to a model: begun by its event, completed by its outcome. Token counts are the provider's.
CREATE SEQUENCE trimtab.llm_calls_id;

CREATE TABLE trimtab.llm_calls (
    id bigint NOT NULL DEFAULT nextval('trimtab.llm_calls_id'),
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
    PRIMARY KEY (session, seq)
) PARTITION BY HASH (session);

ALTER SEQUENCE trimtab.llm_calls_id OWNED BY trimtab.llm_calls.id;

CREATE INDEX llm_calls_created_at ON trimtab.llm_calls (created_at);

DO $$
DECLARE
    parent text;
BEGIN
    FOREACH parent IN ARRAY ARRAY['events', 'blobs', 'words', 'snapshots', 'llm_calls'] LOOP
        FOR remainder IN 0..15 LOOP
            EXECUTE format(
                'CREATE TABLE trimtab.%I PARTITION OF trimtab.%I
                    FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
                parent || '_' || lpad(remainder::text, 2, '0'), parent, remainder);
        END LOOP;
    END LOOP;
END
$$;

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

-- Finds the oldest message.
CREATE INDEX inbox_next ON trimtab.inbox (number);

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
    at double precision NOT NULL,
    -- A new message ends the dead letter, so this number does not change.
    messages integer NOT NULL DEFAULT 0
);

CREATE INDEX dead_at ON trimtab.dead (at);

-- How often in a row the process of a job vanished or stalled while the job ran. Deleted when the job
-- ends in an ordinary way. A job's lock is its session, or `summary` and its session.
CREATE TABLE trimtab.interruptions (
    lock text COLLATE "C" PRIMARY KEY,
    times integer NOT NULL
);

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

-- Erasures of users and tenants that run, or were finished in the last day.
CREATE TABLE trimtab.erasure_jobs (
    number bigint GENERATED ALWAYS AS IDENTITY,
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    -- JSON as text. It names the user until the job is finished.
    body text NOT NULL,
    -- Seconds since the epoch; null until then.
    finished_at double precision,
    -- The process that runs it has it to itself until then.
    lease_until timestamptz NOT NULL
);

CREATE INDEX erasure_jobs_tenant ON trimtab.erasure_jobs (tenant, number);

-- What the digests are keyed with: one row, made once.
CREATE TABLE trimtab.erasure_secret (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    secret bytea NOT NULL
);

INSERT INTO trimtab.erasure_secret (secret)
VALUES (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));

-- What model calls have cost, in millionths of a US dollar, for agents that have a cost ceiling. A
-- total has the real costs of its calls, and of those that are being made the most that they may
-- cost. Rows are updated with every call, so they have room for it in their page.

CREATE TABLE trimtab.spending_per_day (
    -- UTC.
    day date NOT NULL,
    agent text COLLATE "C" NOT NULL,
    micros bigint NOT NULL,
    PRIMARY KEY (day, agent)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE trimtab.spending_per_tenant (
    day date NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    micros bigint NOT NULL,
    PRIMARY KEY (day, tenant)
) WITH (fillfactor = 70);

-- Without the calls that are being made, because those expire.
CREATE TABLE trimtab.spending_per_session (
    session uuid PRIMARY KEY REFERENCES trimtab.sessions (id) ON DELETE CASCADE,
    micros bigint NOT NULL,
    -- What it had cost when its conversation began anew. That no longer counts.
    micros_before_reset bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

-- Calls that are being made. A row names each total that counts it: the session and the tenant are
-- null, and `counts_for_day` is false, if there was no such ceiling.
CREATE TABLE trimtab.spending_reservations (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    day date NOT NULL,
    agent text COLLATE "C" NOT NULL,
    tenant text COLLATE "C",
    session uuid,
    counts_for_day boolean NOT NULL,
    micros bigint NOT NULL,
    -- Seconds since the epoch from which its session no longer counts it: its process was killed.
    until double precision NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX spending_reservations_session ON trimtab.spending_reservations (session, until)
    WHERE session IS NOT NULL;

-- Count a call before it is made, or name the ceiling that it would exceed. Totals are locked in one
-- order everywhere: session, tenant, day. The day's comes last, because all calls of the agent need
-- it. The first commit does not wait for the disk, so that nobody waits for a lock as long as that;
-- the second one does, and with it everything before it is on the disk.
CREATE PROCEDURE trimtab.reserve_spending(
    call_day date,
    call_agent text,
    call_tenant text,
    call_session uuid,
    price bigint,
    session_log_micros bigint,
    called_at double precision,
    expires_at double precision,
    session_ceiling bigint,
    tenant_ceiling bigint,
    day_ceiling bigint,
    INOUT reservation bigint,
    INOUT refused_by text,
    INOUT counted bigint
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF session_ceiling IS NOT NULL THEN
        -- A log may know of a call that was never settled, and knows nothing of calls by sub-agents.
        INSERT INTO trimtab.spending_per_session AS total (session, micros)
        VALUES (call_session, session_log_micros)
        ON CONFLICT (session) DO UPDATE SET micros = greatest(total.micros, excluded.micros)
        RETURNING total.micros - total.micros_before_reset INTO counted;
        -- A statement of its own: it sees all that was committed before the row was locked.
        counted := counted + (
            SELECT coalesce(sum(micros), 0) FROM trimtab.spending_reservations
            WHERE session = call_session AND until > called_at);
        IF counted + price > session_ceiling THEN
            refused_by := 'session';
        END IF;
    END IF;
    IF refused_by IS NULL AND tenant_ceiling IS NOT NULL THEN
        INSERT INTO trimtab.spending_per_tenant AS total (day, tenant, micros)
        SELECT call_day, call_tenant, price WHERE price <= tenant_ceiling
        ON CONFLICT (day, tenant) DO UPDATE SET micros = total.micros + excluded.micros
        WHERE total.micros + excluded.micros <= tenant_ceiling;
        IF NOT FOUND THEN
            refused_by := 'tenant_per_day';
            counted := (
                SELECT micros FROM trimtab.spending_per_tenant
                WHERE day = call_day AND tenant = call_tenant);
        END IF;
    END IF;
    IF refused_by IS NULL THEN
        INSERT INTO trimtab.spending_reservations (
            day, agent, tenant, session, counts_for_day, micros, until)
        VALUES (
            call_day, call_agent,
            CASE WHEN tenant_ceiling IS NOT NULL THEN call_tenant END,
            CASE WHEN session_ceiling IS NOT NULL THEN call_session END,
            day_ceiling IS NOT NULL, price, expires_at)
        RETURNING id INTO reservation;
    END IF;
    IF refused_by IS NULL AND day_ceiling IS NOT NULL THEN
        INSERT INTO trimtab.spending_per_day AS total (day, agent, micros)
        SELECT call_day, call_agent, price WHERE price <= day_ceiling
        ON CONFLICT (day, agent) DO UPDATE SET micros = total.micros + excluded.micros
        WHERE total.micros + excluded.micros <= day_ceiling;
        IF NOT FOUND THEN
            refused_by := 'day';
            counted := (
                SELECT micros FROM trimtab.spending_per_day
                WHERE day = call_day AND agent = call_agent);
        END IF;
    END IF;
    counted := coalesce(counted, 0);
    IF refused_by IS NOT NULL THEN
        ROLLBACK;
        RETURN;
    END IF;
    COMMIT;
    PERFORM pg_logical_emit_message(true, 'trimtab', '');
END
$$;

-- Replace a reservation by the real cost of the call. If the server fails before this is on its
-- disk, the reserved amount goes on to count.
CREATE PROCEDURE trimtab.settle_spending(settled bigint, cost bigint) LANGUAGE plpgsql AS $$
DECLARE
    call trimtab.spending_reservations;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM trimtab.spending_reservations WHERE id = settled RETURNING * INTO call;
    IF call.session IS NOT NULL THEN
        UPDATE trimtab.spending_per_session SET micros = micros + cost
        WHERE session = call.session;
    END IF;
    IF call.tenant IS NOT NULL THEN
        UPDATE trimtab.spending_per_tenant SET micros = micros + cost - call.micros
        WHERE day = call.day AND tenant = call.tenant;
    END IF;
    IF call.counts_for_day THEN
        UPDATE trimtab.spending_per_day SET micros = micros + cost - call.micros
        WHERE day = call.day AND agent = call.agent;
    END IF;
END
$$;

-- API keys. Only the SHA-256 hash of a key is stored.

CREATE TABLE trimtab.api_keys (
    sha256 bytea PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    tenant text COLLATE "C" NOT NULL,
    -- Null for all agents.
    agents text[],
    role text NOT NULL,
    -- Seconds since the epoch.
    created_at double precision NOT NULL,
    -- Null for never.
    expires_at double precision,
    -- To the minute.
    last_used_at double precision
) WITH (fillfactor = 80);

-- Tells whether a tenant has a key.
CREATE INDEX api_keys_tenant ON trimtab.api_keys (tenant);
CREATE INDEX api_keys_expiry ON trimtab.api_keys (expires_at) WHERE expires_at IS NOT NULL;

-- What tenants store. The server counts sessions in the background, never within an append.

CREATE TABLE trimtab.session_usage (
    session uuid PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    -- Bytes of the events up to the position `counted`.
    event_bytes bigint NOT NULL,
    counted integer NOT NULL,
    -- Bytes of these events and of all blobs.
    bytes bigint NOT NULL
) WITH (fillfactor = 80);

-- Finds the few sessions that have reached a limit.
CREATE INDEX session_usage_bytes ON trimtab.session_usage (bytes);

CREATE TABLE trimtab.tenant_usage (
    tenant text COLLATE "C" PRIMARY KEY,
    sessions bigint NOT NULL,
    bytes bigint NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX tenant_usage_sessions ON trimtab.tenant_usage (sessions);
CREATE INDEX tenant_usage_bytes ON trimtab.tenant_usage (bytes);

CREATE FUNCTION trimtab.count_tenant_usage() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    more_sessions integer := 0;
    more_bytes bigint := 0;
    owner text;
BEGIN
    IF TG_OP <> 'DELETE' THEN
        owner := NEW.tenant;
        more_sessions := 1;
        more_bytes := NEW.bytes;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        owner := OLD.tenant;
        more_sessions := more_sessions - 1;
        more_bytes := more_bytes - OLD.bytes;
    END IF;
    INSERT INTO trimtab.tenant_usage AS total (tenant, sessions, bytes)
    VALUES (owner, more_sessions, more_bytes)
    ON CONFLICT (tenant) DO UPDATE
    SET sessions = total.sessions + excluded.sessions, bytes = total.bytes + excluded.bytes;
    RETURN NULL;
END
$$;

CREATE TRIGGER session_usage_counted AFTER INSERT OR DELETE OR UPDATE OF bytes
ON trimtab.session_usage FOR EACH ROW EXECUTE FUNCTION trimtab.count_tenant_usage();
