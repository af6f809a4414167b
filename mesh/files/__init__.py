"""Files of a process and of an installation."""
