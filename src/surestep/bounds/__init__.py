"""Safe intervals for the entries of the smooth gradient, kept up to date while a solver moves: one file a tracker."""
