"""Queries: handlers of the input, the selector after a window, and what becomes of both."""
