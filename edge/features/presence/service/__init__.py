"""Operations on presence, subscriptions and rosters, without XML."""
