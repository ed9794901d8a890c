package toolclient

import (
	"fmt"
	"io"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// SetLibraryOutput makes client-go fit the output of a command. Warnings of API servers become lines "Warning: ..." on out, each
// once, as in kubectl. The log of client-go (klog) is discarded, because commands report errors themselves; with a verbosity
// above 0 it goes to standard error. The settings are global to the process, so only a program calls it, before its first request.
func SetLibraryOutput(out io.Writer, verbosity int) error {
	rest.SetDefaultWarningHandler(rest.NewWarningWriter(out, rest.WarningWriterOptions{Deduplicate: true}))
	if verbosity <= 0 {
		klog.SetLogger(logr.Discard())
		return nil
	}
	var level klog.Level // Set changes the level of the process
	if err := level.Set(strconv.Itoa(verbosity)); err != nil {
		return fmt.Errorf("log level of client-go: %w", err)
	}
	return nil
}
