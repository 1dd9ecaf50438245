"""The features, one folder or module each; `register` adds a feature's hooks to the engine."""
