"""The mesh command."""
