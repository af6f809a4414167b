"""One query: handlers, selection and output rate, for each kind of input."""
