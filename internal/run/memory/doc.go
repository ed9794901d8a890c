// Package memory bounds the memory of a process: it returns start-up memory to the operating system, and lets the heap grow
// under load. It also reads the memory limit and usage of the process's control groups.
package memory
