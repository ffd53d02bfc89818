"""Solvers: each owns its state and its step; the one loop owns the clock, the stopping and the callbacks."""
