package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"time"
)

// member is a file in an archive.
type member struct {
	name       string
	executable bool
	data       []byte
}

func (m member) mode() int64 {
	if m.executable {
		return 0o755
	}
	return 0o644
}

// tarOf packs files without an owner and with a fixed time.
func tarOf(members []member, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(z)
	for _, m := range members {
		if err := t.WriteHeader(&tar.Header{Name: m.name, Mode: m.mode(), Size: int64(len(m.data)), ModTime: at, Format: tar.FormatUSTAR}); err != nil {
			return nil, fmt.Errorf("pack %s: %w", m.name, err)
		}
		if _, err := t.Write(m.data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", m.name, err)
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	err = z.Close()
	return out.Bytes(), err
}

func zipOf(members []member, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: at}
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", m.name, err)
		}
		if _, err := w.Write(m.data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", m.name, err)
		}
	}
	err := z.Close()
	return out.Bytes(), err
}
