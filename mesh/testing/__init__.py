"""Support for tests of mesh and of apps."""
