"""What tests of mesh and of apps need."""
