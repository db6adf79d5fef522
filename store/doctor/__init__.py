"""Reports of what the rules find: all faults, ranked; changes since an earlier report; why a subscription or bytes stay."""
