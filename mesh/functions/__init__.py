"""Functions: signatures as data, kernels over Arrow."""
