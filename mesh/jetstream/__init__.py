"""The only package that speaks NATS."""
