"""Cost of saving and restoring a namespace's state, compared with Kishu, dill, cloudpickle and a restart.

As in the benchmark of runtimes, each sample is taken in a separate process with one contender and one measure.
"""
