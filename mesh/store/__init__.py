"""Tables in databases: SQLAlchemy Core for dialects, and the marker transaction for exactness."""
