"""The same solver on Dask: data in row partitions that stay on their workers.

from surestep.distributed import cluster, read_svmlight

with cluster("tcp://scheduler:8786"):                      # or cluster(n_workers=4), on this machine
X, y = read_svmlight("folder/*.svm", n_features=47_236, zero_based=False)
problem = ss.Problem(X, y, "logistic", ss.L1(1e-4))    # any dask array or DataFrame will do
result = ss.minimize(problem)                          # or ss.path(problem), or an estimator's fit(X, y)
"""

from surestep.distributed._clients import cluster as cluster
from surestep.distributed._files import read_svmlight as read_svmlight
from surestep.distributed._problem import PartitionedProblem as PartitionedProblem
from surestep.distributed._samples import PartitionedSamples as PartitionedSamples
