package simulation

// watches are watches of users, and the writes that they observe.
func watches() []action { return nil }

var watchesAtRest []condition
