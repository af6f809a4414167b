"""Planning, from a syntax tree to a deployable app: bind names, cut groups, wire channels."""
