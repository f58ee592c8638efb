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
