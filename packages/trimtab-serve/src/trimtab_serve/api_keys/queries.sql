-- Statements of the API keys, by name. SQLite reads them as `queue/sqlite/transactions.py` says.

-- name: add
INSERT INTO trimtab.api_keys (sha256, name, tenant, agents, role, created_at, expires_at)
VALUES ($1, CAST($2 AS text), CAST($3 AS text), $4, CAST($5 AS text), $6, $7)
ON CONFLICT (name) DO NOTHING;

-- name: find
SELECT sha256, name, tenant, agents, role, created_at, expires_at, last_used_at
FROM trimtab.api_keys WHERE sha256 = ANY ($1::bytea[]);

-- name: revoke
DELETE FROM trimtab.api_keys WHERE name = CAST($1 AS text);

-- name: list
SELECT sha256, name, tenant, agents, role, created_at, expires_at, last_used_at
FROM trimtab.api_keys WHERE CAST($1 AS text) IS NULL OR tenant = CAST($1 AS text)
ORDER BY created_at, name LIMIT $2;

-- name: expiring
SELECT sha256, name, tenant, agents, role, created_at, expires_at, last_used_at
FROM trimtab.api_keys WHERE expires_at > $1 ORDER BY expires_at LIMIT $2;

-- name: any
SELECT 1 FROM trimtab.api_keys LIMIT 1;

-- name: save_last_use
UPDATE trimtab.api_keys SET last_used_at = $2
WHERE sha256 = $1 AND (last_used_at IS NULL OR last_used_at < $2);
