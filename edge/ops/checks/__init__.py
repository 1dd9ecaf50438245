"""What `fieldpost doctor` looks at, one file for each part of a gateway."""
