"""HTTP of servers and clients with bounds: connections, bodies, answers, certificates."""
