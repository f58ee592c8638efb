-- What was erased, when and by whom, without anything of the content.

CREATE TABLE trimtab.erasures (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    -- A keyed digest of a user's or a session's id; empty where there is none.
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
