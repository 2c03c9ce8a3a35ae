"""The words of an agent: events, commands, responses, conversations, the runtime that it needs."""
