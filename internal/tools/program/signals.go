package program

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Context returns a context that ends with the first SIGINT or SIGTERM. The second ends the process at once, with the exit
// status of a process that the signal kills, such as 130 for Ctrl-C. The default handling of signals does not end the first
// process of a container.
func Context() (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // until the process ends
		<-signals
		cancel()
		os.Exit(exitStatus(<-signals))
	}()
	return ctx, cancel
}

func exitStatus(s os.Signal) int {
	if number, ok := s.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return 1
}
