// Command cat prints a packed recording: go run ./e2e/packed/cat FILE
package main

import (
	"fmt"
	"os"

	"portico.dev/e2e/packed"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cat FILE")
		os.Exit(2)
	}
	content, err := packed.Read(os.Args[1])
	if err == nil {
		_, err = os.Stdout.Write(content)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
