"""One reader per kind of file: an open source in, sections out. They walk no folders and write nothing."""
