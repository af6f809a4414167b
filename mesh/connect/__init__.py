"""Declarations of connectors, and the interface that their authors implement.

A connector is a source, a sink, a mapper of either, or a distribution strategy.  Its declaration,
a ``Spec``, imports no client library, so managers plan and validate an app without one.  The
implementation is loaded by its name where it runs.
"""
