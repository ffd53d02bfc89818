"""surestep: coordinate descent and SGD under safe adaptive importance sampling (Stich, Raj, Jaggi, NIPS 2017)."""

__version__ = "0.1.0.dev0"
