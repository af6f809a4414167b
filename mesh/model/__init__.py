"""What crosses a process border: types, names, records, and their JSON."""
