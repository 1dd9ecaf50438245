"""What an operator can ask or do: each operation once, over the store and the rules."""
