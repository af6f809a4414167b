"""Data model shared by manager, worker and CLI: types, names, KV records and their JSON codec."""
