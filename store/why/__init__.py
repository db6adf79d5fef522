"""Why a subscription stands where it does, and why bytes stay on disks: reasons with evidence and the next command."""
