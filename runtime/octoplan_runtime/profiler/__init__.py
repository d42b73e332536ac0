"""``octoplan profile``: times and sizes of real layers, as a model graph."""
