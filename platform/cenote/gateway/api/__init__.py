"""The gateway's servers: gRPC services, the HTTP application, health, metrics, and the code that they call."""
