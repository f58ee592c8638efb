-- Queries of the API keys, by name.

-- name: add
INSERT INTO trimtab.api_keys (sha256, name, tenant, agents, role, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (name) DO NOTHING;

-- name: find
SELECT sha256, name, tenant, agents, role, created_at, expires_at, last_used_at
FROM trimtab.api_keys WHERE sha256 = $1;

-- name: revoke
DELETE FROM trimtab.api_keys WHERE name = $1;

-- name: list
SELECT sha256, name, tenant, agents, role, created_at, expires_at, last_used_at
FROM trimtab.api_keys ORDER BY created_at, name;

-- name: expiring
SELECT sha256, name, tenant, agents, role, created_at, expires_at, last_used_at
FROM trimtab.api_keys WHERE expires_at > $1 ORDER BY expires_at LIMIT $2;

-- name: is_empty
SELECT NOT EXISTS (SELECT FROM trimtab.api_keys);

-- In the order of the hashes, because another process may write the times of the same keys.
-- name: save_last_use
WITH used AS (
    SELECT api_keys.sha256, given.at
    FROM unnest($1::bytea[], $2::float8[]) AS given (sha256, at)
    JOIN trimtab.api_keys USING (sha256)
    WHERE api_keys.last_used_at IS NULL OR api_keys.last_used_at < given.at
    ORDER BY api_keys.sha256
    FOR UPDATE OF api_keys
)
UPDATE trimtab.api_keys SET last_used_at = used.at
FROM used WHERE api_keys.sha256 = used.sha256;
