// Package hostmetrics measures the machine it runs on: CPU in cores over a real window, memory as working set.
//
// The numbers mean what a kubelet's mean, so that they may stand beside metrics-server's: CPU is time spent working
// divided by the time that passed between two readings, memory is what cannot be reclaimed at once.
package hostmetrics
