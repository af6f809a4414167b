"""Calibration: the costs of an app's groups, measured on random events beside the cluster."""
