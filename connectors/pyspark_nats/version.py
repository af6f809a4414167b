"""Version of the connector and of the mesh; a release changes it here and nowhere else."""

from __future__ import annotations

VERSION = "0.1.0"
