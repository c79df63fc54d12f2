-- Schema 2: the processes that share a database.

-- Processes of a service. A process that has ended by itself has no row.
CREATE TABLE processes (
    name TEXT PRIMARY KEY,          -- chosen by the operator; leases and paths of sessions name it
    epoch INTEGER NOT NULL,         -- grows with each start of a process of this name
    url TEXT NOT NULL,              -- where other processes reach it
    roles TEXT NOT NULL,            -- the roles it takes new work for, with commas in between
    beat INTEGER NOT NULL           -- its last sign of life
) STRICT, WITHOUT ROWID;
