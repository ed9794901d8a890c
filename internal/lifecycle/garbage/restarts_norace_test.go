//go:build !race

package garbage

// restarts is how often collectors are started in TestAThousandRestartsDeleteNothingThatHasAnOwner.
const restarts = 1000
