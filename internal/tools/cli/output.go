package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// Output is the flag -o of a command: the format of its output. Each command implements text, and wide if it has
// additional columns. Output implements json and yaml.
type Output struct {
	format string
	known  []string
}

// Add adds the flag. more lists additional formats of the command.
func (o *Output) Add(fs *pflag.FlagSet, more ...string) {
	o.known = append([]string{"text", "wide", "json", "yaml"}, more...)
	fs.StringVarP(&o.format, "output", "o", "text", "output format: "+o.formats())
	_ = fs.SetAnnotation("output", formatsAnnotation, o.known) // the flag exists
}

// formatsAnnotation is the annotation of a flag with the formats, for completion.
const formatsAnnotation = "portico_formats"

func (o *Output) formats() string {
	last := len(o.known) - 1
	return strings.Join(o.known[:last], ", ") + " or " + o.known[last]
}

// Check returns an error if the command does not support the format.
func (o *Output) Check() error {
	if slices.Contains(o.known, o.format) {
		return nil
	}
	return fmt.Errorf("--output: %q is not %s", o.format, o.formats())
}

// Is reports whether the given format is selected. Wide counts as text.
func (o *Output) Is(format string) bool {
	return o.format == format || format == "text" && o.format == "wide"
}

// Wide reports whether the text should have additional columns.
func (o *Output) Wide() bool { return o.format == "wide" }

// Print prints v as JSON or YAML.
func (o *Output) Print(out io.Writer, v any) error {
	return o.Write(out, func(out io.Writer) error {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(v)
	})
}

// Write prints the output of asJSON as JSON or YAML.
func (o *Output) Write(out io.Writer, asJSON func(io.Writer) error) error {
	if !o.Is("yaml") {
		return asJSON(out)
	}
	var text bytes.Buffer
	if err := asJSON(&text); err != nil {
		return err
	}
	converted, err := yaml.JSONToYAML(text.Bytes())
	if err == nil {
		_, err = out.Write(converted)
	}
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return nil
}
