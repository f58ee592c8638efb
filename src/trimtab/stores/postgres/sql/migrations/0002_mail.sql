-- What came in and waits for its turn, what must go out, and what was given up.
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
    -- Names the session, too; stays for a while behind what has left, so that it leaves once.
    key text COLLATE "C" NOT NULL UNIQUE,
    door text COLLATE "C" NOT NULL,
    body text NOT NULL,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'refused')),
    attempts integer NOT NULL DEFAULT 0,
    -- Not before; for one that has left or never will, when that was.
    due timestamptz NOT NULL DEFAULT now(),
    why text
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- The oldest that waits, without a look at those that have left; and whether it is its session's.
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
