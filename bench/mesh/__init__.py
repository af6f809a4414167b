"""Speed of the mesh in deployment, takeover and wake-up, and its cost when idle."""
