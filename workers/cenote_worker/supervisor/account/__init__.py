"""Measures what a jail uses and enforces its limits: with a control group, or with a watchdog that reads /proc."""
