"""E2B's interface, so that its SDKs and what is written on them work with Cenote's runtimes unchanged.

Written against the SDKs e2b 2.63 and e2b-code-interpreter 2.11, with E2B_API_URL and E2B_SANDBOX_URL set to this
server. A sandbox is a runtime; its contexts are namespaces of authors of their own in it; its commands are programs
beside it.
"""
