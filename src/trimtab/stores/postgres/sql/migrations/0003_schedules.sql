-- What agents are told at set times, and what became of it.

CREATE TABLE trimtab.schedules (
    id text COLLATE "C" PRIMARY KEY,
    session text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    -- `file` or `tool`.
    origin text NOT NULL,
    -- JSON as text, all of it but the next time: jsonb refuses \u0000 and sorts keys.
    body text NOT NULL,
    -- Seconds since the epoch, as the worker's clock has them; null where it is done.
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
    -- Empty where it ran.
    why text NOT NULL,
    -- Where it was skipped: so were all that were due before this.
    until double precision
);

CREATE INDEX schedule_runs_schedule ON trimtab.schedule_runs (schedule, number);
