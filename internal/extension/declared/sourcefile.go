package declared

import (
	"context"
	"fmt"
	"os"
)

// File reads a file as JSON or YAML.
type File struct {
	Path string
	// Format is json or yaml.
	Format   string
	MaxBytes int64
}

// Fetch reads the file. A named pipe or a device is refused: reading one may never end.
func (f *File) Fetch(context.Context) (any, error) {
	info, err := os.Stat(f.Path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", f.Path)
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := readBounded(file, f.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	v, err := decoder(f.Format)(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return v, nil
}
