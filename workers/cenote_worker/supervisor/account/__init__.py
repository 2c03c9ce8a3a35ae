"""What a jail uses and who holds its limits: a control group, or a watchdog that reads /proc."""
