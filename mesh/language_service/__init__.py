"""Language service: answers about a text and a position in it, for every editor.

Pure functions from a ``Document`` to plain values, built on the parser, the binder, the planner and
the declarations of functions and connectors. ``mesh lsp`` and the dashboard are shells around it.

    document = Document.of(text)
    document.problems                             # errors with codes, hints and positions
    complete(document, line, column)              # proposals

Lines and columns count from 1, columns in characters, as in ``mesh.errors.Position``.
"""
