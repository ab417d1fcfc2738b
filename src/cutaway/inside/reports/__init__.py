"""The reports of `cutaway inspect`, `lens`, `patch` and `circuit`: one call each, whose result is printed and saved."""
