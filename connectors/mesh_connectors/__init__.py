"""Sources and sinks of apps that are not NATS: one module each."""
