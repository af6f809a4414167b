"""One query: handlers, selection, output rate, and what each kind of input adds to them."""
