"""Processes: children, bounded ones, Java, signals, and the machine that they run on."""
