"""Operations for operators: each is implemented once, for the commands and the status page."""
