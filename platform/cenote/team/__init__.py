"""Teams: agents that share a budget, hand each other references, and are sent through plans."""
