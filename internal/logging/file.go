package logging

import (
	"errors"
	"io"
	"os"

	"gopkg.in/natefinch/lumberjack.v2"
)

// File is a file to which lines are appended, with the rotation of kube-apiserver's audit log.
type File struct {
	// Path is the file, or "-" for standard output.
	Path string
	// MaxAge is the number of days that rotated files are kept, and MaxBackups the number of them; 0 keeps all. MaxSize is the
	// size in megabytes at which the file is rotated; 0 is 100. Compress compresses rotated files with gzip.
	MaxAge, MaxBackups, MaxSize int
	Compress                    bool
}

// Open opens the file. It checks that the file can be written, so that a wrong path is an error at the start and not at the
// first line. Devices and pipes are not rotated. Each call of Write must pass whole lines, at most a megabyte.
func (f File) Open() (io.WriteCloser, error) {
	if f.Path == "-" {
		return stdout{}, nil
	}
	file, err := os.OpenFile(f.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return file, nil // rotation would rename the device or pipe
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	return &lumberjack.Logger{Filename: f.Path, MaxAge: f.MaxAge, MaxBackups: f.MaxBackups, MaxSize: f.MaxSize, Compress: f.Compress}, nil
}

// stdout is standard output. Close does not close it, because other parts of the program write to it.
type stdout struct{}

// Write implements io.Writer.
func (stdout) Write(lines []byte) (int, error) { return os.Stdout.Write(lines) }

// Close implements io.Closer.
func (stdout) Close() error { return nil }
