"""Cost of each interface to a runtime: gRPC, HTTP, MCP."""
