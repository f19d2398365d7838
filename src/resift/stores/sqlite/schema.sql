-- Tables and indexes of an index file. The text of each definition is part of the checksum of the schema.

CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE documents (row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    text TEXT NOT NULL, metadata TEXT NOT NULL, checksum INTEGER NOT NULL);

CREATE TABLE vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL, checksum INTEGER NOT NULL);

CREATE TABLE sources (path TEXT PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID;

-- The tables and indexes below can be rebuilt from those above.

CREATE TABLE attributes (key TEXT NOT NULL, value BLOB NOT NULL, row INTEGER NOT NULL,
    PRIMARY KEY (key, value, row)) WITHOUT ROWID;

-- The expected number of rows for each attribute value, and the sum of their row numbers.
CREATE TABLE attribute_sums (key TEXT NOT NULL, value BLOB NOT NULL, rows INTEGER NOT NULL,
    total INTEGER NOT NULL, PRIMARY KEY (key, value)) WITHOUT ROWID;

-- A second index of ids, used if the first one does not find an id. It indexes an expression so that SQLite does not
-- use it for anything else.
CREATE INDEX documents_by_id ON documents (id || '');

CREATE TABLE row_blocks (block INTEGER PRIMARY KEY, generation INTEGER NOT NULL,
    lengths BLOB NOT NULL, checksum INTEGER NOT NULL);

CREATE INDEX row_blocks_by_generation ON row_blocks (generation);

CREATE TABLE code_blocks (block INTEGER PRIMARY KEY, codes BLOB NOT NULL, checksum INTEGER NOT NULL);

CREATE TABLE postings (segment INTEGER NOT NULL, first_term TEXT NOT NULL, lists BLOB NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (segment, first_term)) WITHOUT ROWID;
