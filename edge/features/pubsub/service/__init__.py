"""Operations of publish-subscribe as units of work."""
