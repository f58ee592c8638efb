"""What to hide: budgets, plans, policies, the guard."""
