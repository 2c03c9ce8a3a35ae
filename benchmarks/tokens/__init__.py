"""How many tokens a task costs: code in a persistent namespace against JSON tool calls.

The same conversations, with the same underlying tool calls on the same data, are put into the messages of
each style and counted offline. No model is called: the answers are scripted as a good model writes them.
"""
