-- Queries of what tenants store, by name.

-- Only events that are new since the last count are read. In the order of tenants and sessions,
-- because another process may count the same ones.
-- name: measure
INSERT INTO trimtab.session_usage (session, name, tenant, event_bytes, bytes, counted)
SELECT given.session, given.name, given.tenant,
    coalesce(before.event_bytes, 0) + events.bytes,
    coalesce(before.event_bytes, 0) + events.bytes + blobs.bytes + waiting.bytes,
    greatest(coalesce(before.counted, 0), events.last)
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS given (session, name, tenant)
LEFT JOIN trimtab.sessions ON sessions.id = given.session
LEFT JOIN trimtab.session_usage AS before ON before.session = given.session
CROSS JOIN LATERAL (
    SELECT coalesce(sum(octet_length(body)), 0)::bigint AS bytes, coalesce(max(seq), 0) AS last
    FROM trimtab.events
    WHERE events.session = given.session AND seq > coalesce(before.counted, 0)) AS events
CROSS JOIN LATERAL (
    SELECT coalesce(sum(octet_length(data)), 0)::bigint AS bytes
    FROM trimtab.blobs WHERE blobs.session = given.session) AS blobs
CROSS JOIN LATERAL (
    SELECT coalesce(sum(octet_length(body)), 0)::bigint AS bytes
    FROM trimtab.inbox WHERE inbox.session = given.name) AS waiting
WHERE sessions.id IS NOT NULL OR waiting.bytes > 0
ORDER BY given.tenant, given.session
ON CONFLICT (session) DO UPDATE
SET event_bytes = excluded.event_bytes, bytes = excluded.bytes, counted = excluded.counted;

-- name: recount
UPDATE trimtab.session_usage SET event_bytes = 0, counted = 0 WHERE session = $1;

-- A reservation that is being made is not lost: the count begins after it, in its own statement.
-- name: lock_measured
SELECT FROM trimtab.session_usage WHERE session = ANY ($1::uuid[]) ORDER BY session FOR UPDATE;

-- A message that was counted and then not stored leaves nothing.
-- name: forget_absent
DELETE FROM trimtab.session_usage WHERE session = ANY ($1::uuid[])
    AND NOT EXISTS (SELECT FROM trimtab.sessions WHERE sessions.id = session_usage.session)
    AND NOT EXISTS (SELECT FROM trimtab.inbox WHERE inbox.session = session_usage.name);

-- The tenant's row is locked first, so that reservations of all processes come one after another.
-- name: reserve
WITH total AS MATERIALIZED (
    SELECT bytes FROM trimtab.tenant_usage WHERE tenant = $3 FOR UPDATE
)
INSERT INTO trimtab.session_usage AS own (session, name, tenant, event_bytes, bytes, counted)
SELECT $1, $2, $3, 0, $4, 0 WHERE coalesce((SELECT bytes FROM total), 0) + $4 <= $5
ON CONFLICT (session) DO UPDATE SET bytes = own.bytes + excluded.bytes;

-- name: totals
SELECT tenant, sessions, bytes FROM trimtab.tenant_usage WHERE tenant = ANY ($1::text[]);

-- name: forget
DELETE FROM trimtab.session_usage WHERE session = $1;

-- name: full_sessions
SELECT name, bytes FROM trimtab.session_usage WHERE bytes >= $1 ORDER BY bytes DESC LIMIT $2;

-- name: full_tenants
SELECT tenant, sessions, bytes FROM trimtab.tenant_usage
WHERE sessions >= $1 OR bytes >= $2 LIMIT $3;
