"""The console: pages for people, made on the server, without a script."""
