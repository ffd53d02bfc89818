"""Beyond one machine: the same solvers where rows are on the workers of a Dask cluster."""
