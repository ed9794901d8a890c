package declared

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	// APIVersion and Kind begin every file.
	APIVersion = "extension.portico.dev/v1alpha1"
	Kind       = "ResourceDefinitions"

	maxFileBytes = 1 << 20

	defaultEvery = 10 * time.Second
	quickest     = time.Second
	slowest      = 24 * time.Hour
)

// reader reads files into definitions.
type reader struct {
	allowExec bool
	procRoot  string
}

// file reads one file. The definitions are only good when there are no mistakes.
func (r reader) file(name string) ([]*definition, MistakesError) {
	notes := &notes{file: name}
	data, err := readFile(name)
	if err != nil {
		notes.at(nil, "", "%v", err)
		return nil, notes.mistakes
	}
	var found []*definition
	documents := yaml.NewDecoder(data)
	for {
		var document yaml.Node
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			notes.syntax(err)
			break
		}
		if err := expandable(&document); err != nil {
			notes.syntax(err)
			break
		}
		if len(document.Content) == 1 {
			found = append(found, r.document(notes, document.Content[0])...)
		}
	}
	if len(found) == 0 && len(notes.mistakes) == 0 {
		notes.at(nil, "", "declares nothing: it must begin with apiVersion: %s and kind: %s", APIVersion, Kind)
	}
	for i, d := range found {
		d.file = name
		for _, earlier := range found[:i] {
			if p := d.clash(earlier); p != "" {
				notes.mistakes = append(notes.mistakes, d.mistake(p))
			}
		}
	}
	return found, notes.mistakes
}

func readFile(name string) (io.Reader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("larger than %d bytes; split it", maxFileBytes)
	}
	return bytes.NewReader(data), nil
}

// expandable is an error for aliases that contain themselves or would make a document far larger than it is. What else
// decoding complains of is said better while reading.
func expandable(document *yaml.Node) error {
	var v any
	err := document.Decode(&v)
	var types *yaml.TypeError
	if errors.As(err, &types) {
		return nil
	}
	return err
}

func (r reader) document(notes *notes, n *yaml.Node) []*definition {
	f := newForm(notes, n, "")
	f.need("apiVersion", APIVersion)
	if v := f.text("apiVersion"); v != "" && v != APIVersion {
		f.wrong("apiVersion", "%q: must be %q", v, APIVersion)
	}
	f.need("kind", Kind)
	if v := f.text("kind"); v != "" && v != Kind {
		f.wrong("kind", "%q: must be %q", v, Kind)
	}
	f.need("resources", "a list of resources")
	var found []*definition
	for _, in := range f.forms("resources") {
		found = append(found, r.resource(in))
	}
	f.done()
	return found
}

// clash is why two definitions cannot both be served, or "".
func (d *definition) clash(other *definition) string {
	same := d.gvr.GroupVersion() == other.gvr.GroupVersion()
	switch {
	case d.gvr == other.gvr:
		return fmt.Sprintf("%s of version %s is also declared at %s:%d", d.name(), d.gvr.Version, other.file, other.line)
	case same && d.kind == other.kind:
		return fmt.Sprintf("kind %s of %s is also that of %s, declared at %s:%d", d.kind, d.gvr.GroupVersion(), other.gvr.Resource, other.file, other.line)
	}
	return ""
}

// mistake is one of the definition as a whole.
func (d *definition) mistake(problem string) Mistake {
	return Mistake{File: d.file, Line: d.line, Column: d.column, Problem: problem}
}

// digestOf tells whether a definition is still the same, whatever its comments and its order.
func digestOf(n *yaml.Node) [32]byte {
	var v any
	if err := n.Decode(&v); err != nil {
		return [32]byte{} // a mistake has been noted for what cannot be decoded
	}
	plain, err := yaml.Marshal(v)
	if err != nil {
		return [32]byte{}
	}
	return sha256.Sum256(plain)
}
