"""The pages, one module each: from a request to a view, or to an answer of a form."""
