// Package objects measures how much memory a front door needs for many objects of its local groups, and how long it takes to
// start with them.
package objects
