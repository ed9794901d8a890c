//go:build !linux

package faults

import (
	"errors"
	"testing"
)

func inNamespace(testing.TB) (*blackHole, error) {
	return nil, errors.New("only Linux has network namespaces")
}
