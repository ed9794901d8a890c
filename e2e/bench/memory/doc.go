// Package memory measures the memory of servers under load, and the CPU that additional room for garbage saves: front
// doors with different values of GOGC, front doors in a control group with a limit, and kube-apiserver if its
// programs are given.
package memory
