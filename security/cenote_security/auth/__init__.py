"""Who may do what: tokens and their scopes, capabilities, certificates, files that hold secrets."""
