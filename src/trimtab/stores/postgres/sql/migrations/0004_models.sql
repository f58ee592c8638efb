-- Which model a call went to and what for, so that cost can be summed in SQL.

ALTER TABLE trimtab.sessions ADD COLUMN model text;

UPDATE trimtab.sessions SET model = (
    SELECT events.body::json ->> 'model' FROM trimtab.events
    WHERE events.session = sessions.id AND events.kind = 'settings'
    ORDER BY events.seq DESC LIMIT 1);

-- `reply`, or `summary` for a row that stands for all requests that one summary took. Rows from
-- before this version have no model.
ALTER TABLE trimtab.llm_calls ADD COLUMN model text;
ALTER TABLE trimtab.llm_calls ADD COLUMN purpose text NOT NULL DEFAULT 'reply';
