"""State in pieces: rows, pages and ranges that are stored again only when they change."""
