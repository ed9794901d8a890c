// Package measure contains common parts of the benchmarks: the resource usage of a process, statistics, and the
// description of the machine.
package measure
