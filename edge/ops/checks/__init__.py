"""The checks of `fieldpost doctor`, one module for each part of a gateway."""
