-- Schema 1. Times are milliseconds since 1970 by the clock of the store. Unsigned 64-bit numbers are held as the signed number
-- with the same bits. States are held by their names.

-- The database itself. One row.
CREATE TABLE database (
    one INTEGER PRIMARY KEY CHECK (one = 1), -- the table has no second row
    starts INTEGER NOT NULL,        -- number of times that a process opened the database; an attempt remembers it
    salt BLOB NOT NULL              -- 32 random bytes that hide the subjects of `issued`
) STRICT;

-- Tasks. One task is one run: one mechanism and one ledger.
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,    -- the identifier: SHA-256 of population, name and settings
    population TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,             -- train, evaluate
    config TEXT NOT NULL,           -- the settings in their canonical form
    plan BLOB NOT NULL,             -- the digest of the signed plan
    genesis TEXT NOT NULL,          -- the digest that the first line of the ledger follows
    spacing TEXT NOT NULL,          -- at_least, exactly
    min_sep INTEGER NOT NULL,       -- rounds between two participations of a user, counted from one to the next
    max_part INTEGER NOT NULL,      -- max number of participations of a user
    rounds INTEGER NOT NULL,        -- number of rounds
    floor INTEGER NOT NULL,         -- min number of users in a release
    model BLOB NOT NULL,            -- the initial model
    state TEXT NOT NULL,            -- draft, active, paused, completed, halted
    head_round INTEGER NOT NULL,    -- number of released rounds
    head_model BLOB NOT NULL,       -- the model after them
    head_state BLOB,                -- the sealed noise after them
    chain TEXT NOT NULL,            -- the digest of the last line of the ledger
    fence INTEGER NOT NULL,         -- number of leases so far
    lease_owner TEXT,               -- the process that leads the task
    lease_until INTEGER NOT NULL,   -- the end of its lease
    UNIQUE (population, name)
) STRICT;

-- Attempts at a round.
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER NOT NULL REFERENCES tasks (id),
    round INTEGER NOT NULL,
    attempt INTEGER NOT NULL,       -- the number within the round, from 0
    state TEXT NOT NULL,            -- selecting, reporting, releasing, committed, abandoned
    reason TEXT,                    -- why it was abandoned
    fence INTEGER NOT NULL,         -- the fence under which it last moved
    start INTEGER NOT NULL,         -- `database.starts` when it was opened
    opened INTEGER NOT NULL,
    select_until INTEGER NOT NULL,  -- the end of the selection
    report_until INTEGER NOT NULL,  -- the end of the reports
    target INTEGER NOT NULL,        -- places for sessions
    occupied INTEGER NOT NULL,      -- places that are taken
    included INTEGER,               -- users in the release
    closed INTEGER,                 -- when it ended
    swept INTEGER NOT NULL,         -- 1 after its sessions were deleted
    UNIQUE (task, round, attempt)
) STRICT;
CREATE UNIQUE INDEX open_attempts ON attempts (task) WHERE closed IS NULL;
CREATE INDEX unswept_attempts ON attempts (closed) WHERE swept = 0;

-- Sessions: devices in attempts.
CREATE TABLE sessions (
    id BLOB PRIMARY KEY,            -- 16 random bytes
    attempt INTEGER NOT NULL REFERENCES attempts (id),
    user INTEGER NOT NULL,          -- the pseudonym of the subject in the task
    device BLOB NOT NULL,           -- the key of the device
    checkin BLOB NOT NULL,          -- the check-in, which gets one answer for good
    state TEXT NOT NULL,            -- assigned, ready, reported, lost_before_ready, lost, included
    assigned INTEGER NOT NULL,      -- when it was opened
    UNIQUE (device, checkin)
) STRICT, WITHOUT ROWID;
-- PRIVACY: a user has one session in an attempt, but for those that sent nothing.
CREATE UNIQUE INDEX users_of_attempts ON sessions (attempt, user) WHERE state <> 'lost_before_ready';
CREATE INDEX sessions_without_use ON sessions (attempt) WHERE state = 'lost_before_ready';

-- Users of tasks, by pseudonym.
CREATE TABLE users (
    task INTEGER NOT NULL REFERENCES tasks (id),
    user INTEGER NOT NULL,          -- the pseudonym
    last_round INTEGER,             -- the round of the last participation
    participations INTEGER NOT NULL,-- number of participations, those in abandoned attempts included
    holds_until INTEGER,            -- the end of the hold that an open session has on the user
    PRIMARY KEY (task, user)
) STRICT, WITHOUT ROWID;

-- Releases: one per round.
CREATE TABLE releases (
    task INTEGER NOT NULL REFERENCES tasks (id),
    round INTEGER NOT NULL,
    attempt INTEGER NOT NULL UNIQUE REFERENCES attempts (id),
    included INTEGER NOT NULL,      -- users in the sum
    lost INTEGER NOT NULL,          -- users who joined, and are not in the sum
    line TEXT NOT NULL,             -- the digest of the line of the ledger
    model BLOB NOT NULL,            -- the digest of the model after the round
    state BLOB,                     -- the digest of the sealed noise after the round
    noise_key TEXT,                 -- the name of the key of the noise
    released INTEGER NOT NULL,      -- when
    PRIMARY KEY (task, round)
) STRICT;

-- Ledgers.
CREATE TABLE ledger (
    task INTEGER NOT NULL REFERENCES tasks (id),
    seq INTEGER NOT NULL,           -- the number of the line, from 0
    round INTEGER,                  -- the round that it releases; null for the last line of a task
    line BLOB NOT NULL,             -- the line without its line feed
    digest TEXT NOT NULL,
    previous TEXT NOT NULL,         -- the digest of the line before
    PRIMARY KEY (task, seq)
) STRICT;

-- Models. The rows that are not published are the outbox.
CREATE TABLE models (
    task INTEGER NOT NULL REFERENCES tasks (id),
    round INTEGER NOT NULL,         -- number of released rounds that made it
    digest BLOB NOT NULL,
    published INTEGER NOT NULL,     -- 1 after it was published
    PRIMARY KEY (task, round)
) STRICT;
CREATE INDEX models_by_digest ON models (digest);
CREATE INDEX outbox ON models (task, round) WHERE published = 0;

-- The users of abandoned attempts.
CREATE TABLE abandoned (
    attempt INTEGER NOT NULL REFERENCES attempts (id),
    user INTEGER NOT NULL,
    PRIMARY KEY (attempt, user)
) STRICT, WITHOUT ROWID;

-- Devices that were given a certificate.
CREATE TABLE devices (
    key BLOB PRIMARY KEY,
    population TEXT NOT NULL,
    enrolled_day INTEGER NOT NULL,  -- counted from 1970
    revoked INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Session certificates that were used.
CREATE TABLE spent (
    key BLOB PRIMARY KEY,           -- the digest of the key of the session
    until INTEGER NOT NULL          -- the end of the certificate
) STRICT, WITHOUT ROWID;

-- Counters of session certificates.
CREATE TABLE issued (
    key BLOB PRIMARY KEY,           -- the digest of salt, subject and window: rows of one subject cannot be linked without it
    number INTEGER NOT NULL,
    at INTEGER NOT NULL             -- the last issue
) STRICT, WITHOUT ROWID;

-- The audit log.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    detail TEXT NOT NULL,
    previous TEXT NOT NULL,         -- the digest of the row before
    digest TEXT NOT NULL
) STRICT;

-- The lines of `metrics.jsonl`.
CREATE TABLE metrics (
    task INTEGER NOT NULL REFERENCES tasks (id),
    seq INTEGER NOT NULL,
    line BLOB NOT NULL,
    PRIMARY KEY (task, seq)
) STRICT;
