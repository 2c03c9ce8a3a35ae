"""Speed, memory use and responsiveness of runtimes, measured for several contenders in interleaved rounds.

Every sample is taken in a separate process (`driver`) with one contender and one measure; the parent (`session`)
only starts it and reads figures. So one contender's memory and warm caches cannot affect another, and every clock
runs where the calls are made.
"""
