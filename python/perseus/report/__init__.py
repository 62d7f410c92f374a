"""Pictures of a solved pipeline; matplotlib is imported only when something is drawn."""
