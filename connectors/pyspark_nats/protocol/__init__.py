"""The NATS client: protocol frames, handshake, connection with reconnects, JetStream calls."""
