// Package memory measures how much memory servers take under a load, and what room for garbage saves of CPU: front doors
// with other values of GOGC, in a control group with a limit, and kube-apiserver if its programs are given.
package memory
