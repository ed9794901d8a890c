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

// MaxBytes is the default bound of an answer.
const MaxBytes = 16 << 20

// ErrTooLarge is what an answer beyond its bound is.
var ErrTooLarge = errors.New("the answer is too large")

// JSON reads one JSON value. Whole numbers stay whole, as they must for identifiers beyond 2^53.
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

// numbers replaces json.Number in v by int64 where that loses nothing, and float64 otherwise.
func numbers(v any) any {
	switch at := v.(type) {
	case json.Number:
		if i, err := at.Int64(); err == nil {
			return i
		}
		f, err := at.Float64()
		if err != nil {
			return at.String() // beyond what a float can hold
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

// YAML reads a stream of documents: one document is itself, more are a list.
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

// decoder is the function of a format's name.
func decoder(format string) func([]byte) (any, error) {
	if format == "yaml" {
		return YAML
	}
	return JSON
}

func beginning(data []byte) []byte { return data[:min(len(data), 60)] }

// readBounded reads all of r, or fails when that is more than limit.
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
