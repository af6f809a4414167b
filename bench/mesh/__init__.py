"""How quick the mesh is to deploy, to take over and to wake up, and what it costs when idle."""
