"""The processes' talk: messages, replay's layout, the Reverb server, calls with time limits.

Imports `core`, `environments` and `policy`. Only `server` loads more than Reverb's client.
"""
