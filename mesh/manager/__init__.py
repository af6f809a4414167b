"""A manager: watches the cluster, leads it when its turn comes."""
