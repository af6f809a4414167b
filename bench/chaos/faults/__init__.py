"""What is done to a mesh under load, each fault a function over the scene."""
