"""How fast, how big and how responsive a runtime is, measured for several contenders in interleaved rounds.

Every sample is taken in a process of its own (`driver`), which holds one contender and one measure; the
parent (`session`) only starts it and reads figures. So neither the memory nor the warm caches of one
contender can touch another, and every clock runs where the calls are made.
"""
