"""What the rules find, told: everything that is wrong with a store, ranked; what changed since; why a subscription or bytes stay."""
