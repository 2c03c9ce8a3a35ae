"""Carries out what an agent decides: model calls, cells, injections, branches."""
