// Package objects measures the memory of a front door with many objects in its local groups, and the duration of its
// start with them.
package objects
