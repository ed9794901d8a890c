// Command gen writes the OpenAPI documents of the local groups into the directory it is run in.
package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// patience limits the startup and response time of the local groups.
const patience = time.Minute

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := generate(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func generate(ctx context.Context) error {
	served, err := discover(ctx)
	if err != nil {
		return fmt.Errorf("ask the local groups what they serve: %w", err)
	}
	described, err := describe(served)
	if err != nil {
		return err
	}
	return write(described)
}
