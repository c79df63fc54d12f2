-- Schema 4: subjects that left, limits per subject, and tasks that keep nothing about people.

-- Subjects that take part in a population no more, or enrol no device any more. A row says neither when nor why.
CREATE TABLE departed (
    population TEXT NOT NULL,
    person BLOB NOT NULL,           -- a hash of the subject, under the key file
    how TEXT NOT NULL,              -- withdrawn, left, revoked
    PRIMARY KEY (population, person)
) STRICT, WITHOUT ROWID;

-- Users by their number of participations, for tasks whose users were deleted.
CREATE TABLE histograms (
    task INTEGER NOT NULL REFERENCES tasks (id),
    participations INTEGER NOT NULL,-- number of participations
    users INTEGER NOT NULL,         -- users who have so many
    PRIMARY KEY (task, participations)
) STRICT, WITHOUT ROWID;

-- The hash of a device's subject, as in `departed`; null for a device that enrolled before.
ALTER TABLE devices ADD COLUMN person BLOB;
CREATE INDEX devices_of_persons ON devices (population, person);

-- 1 for an ended task whose models and ledger were deleted. Its settings stay, since they count for the budget of the population.
ALTER TABLE tasks ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;

-- Number of releases before the model that boards name for predictions; null for the newest one.
ALTER TABLE tasks ADD COLUMN pinned INTEGER;

-- Lost sessions of a user are counted.
DROP INDEX sessions_without_use;
CREATE INDEX sessions_without_use ON sessions (attempt, user) WHERE state = 'lost_before_ready';

-- PRIVACY: no key of a device stands beside a pseudonym. Attempts of an earlier start can only be abandoned, so nothing looks for it.
UPDATE sessions SET device = id;
