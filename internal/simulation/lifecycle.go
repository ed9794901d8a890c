package simulation

// lifecycle are deletions of namespaces and of owners.
func lifecycle() []action { return nil }

var lifecycleAtRest []condition
