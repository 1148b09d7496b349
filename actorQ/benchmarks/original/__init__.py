"""Stand-ins for the original ActorQ's loop and weights' path, pickle included."""
