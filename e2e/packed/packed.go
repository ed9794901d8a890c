// Package packed reads and writes recorded results as zstd files. `go run ./e2e/packed/cat FILE` prints one.
package packed

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Suffix is the end of the names of packed files. Read and Write do not pack files with other names.
const Suffix = ".zst"

// limit is the maximum size of a recording in bytes.
const limit = 256 << 20

// Read returns the content of a file. It fails for content of more than 256 MiB.
func Read(file string) ([]byte, error) {
	if !strings.HasSuffix(file, Suffix) {
		return os.ReadFile(file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	from, err := zstd.NewReader(f, zstd.WithDecoderMaxMemory(limit))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	defer from.Close()
	content, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(content) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", file, limit)
	}
	return content, nil
}

// Write writes the content of a file. The same content gives the same bytes.
func Write(file string, content []byte) error {
	if !strings.HasSuffix(file, Suffix) {
		return os.WriteFile(file, content, 0o644)
	}
	var out bytes.Buffer
	to, err := zstd.NewWriter(&out, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(zstd.MaxWindowSize>>2), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	if _, err := to.Write(content); err != nil {
		return err
	}
	if err := to.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}
