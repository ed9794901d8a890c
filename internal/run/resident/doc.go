// Package resident is about how much memory stays: it lets go of what only the start of a program needed (GiveBack), and takes
// more while there is load (Headroom).
package resident
