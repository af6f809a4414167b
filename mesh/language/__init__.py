"""SiddhiQL: tokens, syntax tree, parser, printer."""
