"""The reports: each a function from DataFrames to a DataFrame, with the schema that it declares."""
