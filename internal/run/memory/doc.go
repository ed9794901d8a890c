// Package memory bounds how much memory a process keeps: it returns start-up memory to the operating system, and gives
// the heap more room while there is load. It also reads how much memory the control groups of the process allow and use.
package memory
