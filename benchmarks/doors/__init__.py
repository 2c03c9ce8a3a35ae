"""What the way to a runtime costs: gRPC, HTTP, MCP."""
