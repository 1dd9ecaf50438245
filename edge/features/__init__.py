"""The features, one folder or module each; `register` names what a feature does and when."""
