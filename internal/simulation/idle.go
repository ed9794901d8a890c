package simulation

var idleAtRest []condition
