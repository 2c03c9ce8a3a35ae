"""Access control of the platform: tenants, tokens, names, quotas, fair turns, the audit log, certificates.

Plain classes without a network: the servers call them.
"""
