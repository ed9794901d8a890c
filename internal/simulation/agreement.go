package simulation

// holds are pauses in which faults last, so that everything that reports them agrees.
func holds() []action { return nil }

var agreementAtRest []condition
