package declared

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// MaxBytes is the default limit for the size of a response.
const MaxBytes = 16 << 20

// ErrTooLarge is returned for a response that exceeds its limit.
var ErrTooLarge = errors.New("the answer is too large")

// JSON decodes one JSON value. Integers remain integers, so that identifiers beyond 2^53 are exact.
func JSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("not JSON: %w (it begins with %q)", err, beginning(data))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not JSON: there is more behind the first value")
	}
	return numbers(v), nil
}

// numbers replaces each json.Number in v by an int64 if that is exact, and by a float64 otherwise.
func numbers(v any) any {
	switch at := v.(type) {
	case json.Number:
		if i, err := at.Int64(); err == nil {
			return i
		}
		f, err := at.Float64()
		if err != nil {
			return at.String() // exceeds the range of float64
		}
		return f
	case map[string]any:
		for k := range at {
			at[k] = numbers(at[k])
		}
	case []any:
		for i := range at {
			at[i] = numbers(at[i])
		}
	}
	return v
}

// YAML decodes a stream of documents. It returns a single document as is, and several documents as a list.
func YAML(data []byte) (any, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var all []any
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("not YAML: %w", err)
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		text, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, fmt.Errorf("not YAML: %w", err)
		}
		v, err := JSON(text)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

// decoder returns the decoding function of a format.
func decoder(format string) func([]byte) (any, error) {
	if format == "yaml" {
		return YAML
	}
	return JSON
}

func beginning(data []byte) []byte { return data[:min(len(data), 60)] }

// readBounded reads all of r. It returns ErrTooLarge for more than limit bytes.
func readBounded(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes; raise maxBytes if that is right", ErrTooLarge, limit)
	}
	return data, nil
}
