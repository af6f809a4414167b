"""A seeded simulator of the control plane: its real decisions, in a world full of faults."""
