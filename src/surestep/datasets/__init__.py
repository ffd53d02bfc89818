"""Data sets: svmlight files, sets by name, the subsets of the paper, a generator."""

from surestep.datasets.generated import make_bag_of_words as make_bag_of_words
from surestep.datasets.named import Dataset as Dataset
from surestep.datasets.named import DatasetInfo as DatasetInfo
from surestep.datasets.named import list_datasets as list_datasets
from surestep.datasets.named import load_dataset as load_dataset
from surestep.datasets.subsets import subset as subset
from surestep.datasets.subsets import with_ones as with_ones
from surestep.datasets.svmlight import MalformedFileError as MalformedFileError
from surestep.datasets.svmlight import load_svmlight as load_svmlight
from surestep.datasets.svmlight import save_svmlight as save_svmlight
