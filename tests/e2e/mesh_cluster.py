"""A whole mesh for end-to-end tests; the harness itself is ``mesh.testing.cluster``."""

from mesh.testing.cluster import MeshCluster, View

__all__ = ["MeshCluster", "View"]
