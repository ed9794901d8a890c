// Package overload attacks the memory of a front door: a real process with a limit, and clients that try to have it hold ten times as
// much, while an administrator, a node, a controller and an ordinary user work.
package overload
