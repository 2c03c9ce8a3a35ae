"""What it costs to keep a namespace's state, and to have it again: against Kishu, dill, cloudpickle and a restart.

As in the benchmark of runtimes, each sample is taken in a process of its own, with one contender and one measure.
"""
