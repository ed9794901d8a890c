//go:build race

package garbage

// restarts are fewer here: the race detector crashes in one of ten runs of a thousand (golang/go issue 78156, about synctest).
const restarts = 80
