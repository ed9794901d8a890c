//go:build !race

package garbage

// restarts is how often collectors are started in TestThousandRestartsDeleteNoObjectWithOwner.
const restarts = 1000
