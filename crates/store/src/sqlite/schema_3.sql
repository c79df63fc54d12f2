-- Schema 3: subjects that take part no more, and the keys of pseudonyms.

-- Users that take part in a task no more.
CREATE TABLE barred (
    task INTEGER NOT NULL REFERENCES tasks (id),
    user INTEGER NOT NULL,          -- the pseudonym
    at INTEGER NOT NULL,
    PRIMARY KEY (task, user)
) STRICT, WITHOUT ROWID;

-- The keys of the pseudonyms of tasks. Without its row nobody can link a subject and a ledger.
CREATE TABLE pseudonym_keys (
    task BLOB PRIMARY KEY,          -- the identifier of the task
    sealed BLOB NOT NULL            -- sealed under a key of the key file
) STRICT, WITHOUT ROWID;
