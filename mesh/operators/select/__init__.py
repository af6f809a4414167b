"""The select clause: groups, aggregates, order, and the rows of the output."""
