"""Data sets: svmlight files, sets by name, the subsets of the paper, a generator."""

from surestep.datasets.svmlight import MalformedFileError as MalformedFileError
from surestep.datasets.svmlight import load_svmlight as load_svmlight
from surestep.datasets.svmlight import save_svmlight as save_svmlight
