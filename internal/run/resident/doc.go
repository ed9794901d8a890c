// Package resident lets go of memory that only the start of a program needed.
package resident
