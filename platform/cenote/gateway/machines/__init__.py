"""The machines that run a platform's runtimes: this one, a Ray cluster of its own, or one that it joins."""
