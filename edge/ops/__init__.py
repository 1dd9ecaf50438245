"""Operations for operators, used by the commands and by the status page."""
