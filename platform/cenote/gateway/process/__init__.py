"""The process of a platform: how it is started, watched, restarted and ended."""
