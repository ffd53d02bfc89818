"""The same solver on Dask: data in row partitions that stay on their workers.

Here is what it looks like; any dask array or DataFrame will do in place of the files::

    import surestep as ss
    from surestep.distributed import cluster, read_svmlight

    with cluster("tcp://scheduler:8786"):  # or cluster(n_workers=4), processes on this machine
        X, y = read_svmlight("folder/*.svm", n_features=47_236, zero_based=False)
        problem = ss.Problem(X, y, "logistic", ss.L1(1e-4))
        result = ss.minimize(problem)  # or ss.path(problem), or fit(X, y) of an estimator

The solver is `surestep.minimize`. All it does with rows is sums over them (`surestep.solvers._samples`); here every sum
is one message to each worker and one back, along a tree of them, and what is as long as the rows stays on the workers.
`surestep.stochastic_gradient_descent` with ``bounds="delegated"`` has them draw rows, and send those that were drawn.
"""

from surestep.distributed._clients import cluster as cluster
from surestep.distributed._files import read_svmlight as read_svmlight
from surestep.distributed._partitions import Partitions as Partitions
from surestep.distributed._parts import Targets as Targets
from surestep.distributed._problem import PartitionedProblem as PartitionedProblem
from surestep.distributed._samples import PartitionedSamples as PartitionedSamples
