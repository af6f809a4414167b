"""Output rates: ``output all|first|last|snapshot every ..``."""
