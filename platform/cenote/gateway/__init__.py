"""Who may what on the platform: tenants, tokens, names, quotas, fair turns, the audit log, certificates.

Plain classes without a network: what listens calls them.
"""
