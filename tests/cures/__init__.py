"""Each rule with its fault planted: it is told and nothing else is, the printed command cures it, and changes nothing else."""
