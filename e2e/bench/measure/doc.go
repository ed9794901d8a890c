// Package measure is what benchmarks of running servers have in common: what a process has used, numbers with their noise,
// and the machine that they were made on.
package measure
