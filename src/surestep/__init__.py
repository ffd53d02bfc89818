"""surestep: coordinate descent and SGD under safe adaptive importance sampling (Stich, Raj, Jaggi, NIPS 2017)."""

from surestep.sampling.distribution import Sampling as Sampling
from surestep.sampling.distribution import importance_sampling as importance_sampling
from surestep.sampling.distribution import optimal_sampling as optimal_sampling
from surestep.sampling.distribution import safe_sampling as safe_sampling
from surestep.sampling.distribution import uniform_sampling as uniform_sampling
from surestep.sampling.progress import progress_model as progress_model
from surestep.sampling.progress import progress_stepsize as progress_stepsize

__version__ = "0.1.0.dev0"
