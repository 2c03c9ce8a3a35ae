"""E2B's interface, so that its SDKs and programs that use them work with Cenote's runtimes unchanged.

Written against the SDKs e2b 2.63 and e2b-code-interpreter 2.11, with E2B_API_URL and E2B_SANDBOX_URL set to this
server. A sandbox is a runtime; its contexts are namespaces of separate authors in it; its commands are programs that
run next to it.
"""
