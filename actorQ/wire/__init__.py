"""How the processes talk: messages, replay's layout, the Reverb server, and calls with time limits.

Imports `core`, `environments` and `policy`. Only `server` loads more than Reverb's client.
"""
