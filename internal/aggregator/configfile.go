package aggregator

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	yamlnode "go.yaml.in/yaml/v3"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/logging"
)

// apiVersion and kind of configuration files.
const (
	configAPIVersion = "config.portico.dev/v1alpha1"
	configKind       = "AggregatorConfiguration"
)

// maxConfigFile is many times the size of all settings.
const maxConfigFile = 1 << 20

// ReadConfigFile sets the flags from a configuration file. It does not change a flag that was set before, on the
// command line. Every flag of the sets is a field, with a name from fieldName. The error contains every mistake, with
// its line.
func ReadConfigFile(path string, sets cliflag.NamedFlagSets) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	defer func() { _ = f.Close() }() // the file is only read
	data, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if len(data) > maxConfigFile {
		return fmt.Errorf("--config: %s is larger than %d bytes, and no configuration is", path, maxConfigFile)
	}
	c := configFile{path: path, flags: map[string]*pflag.Flag{}}
	for _, name := range sets.Order {
		sets.FlagSets[name].VisitAll(func(f *pflag.Flag) { c.flags[fieldName(f.Name)] = f })
	}
	root, err := c.parse(data)
	if err != nil {
		return err
	}
	c.read(root)
	return errors.Join(c.errs...)
}

// configFile is a configuration file that is being read.
type configFile struct {
	path  string
	flags map[string]*pflag.Flag // by field
	errs  []error
}

func (c *configFile) wrong(at *yamlnode.Node, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s:%d: %s", c.path, at.Line, fmt.Sprintf(format, args...)))
}

// parse returns the top-level mapping of the file.
func (c *configFile) parse(data []byte) (*yamlnode.Node, error) {
	documents := yamlnode.NewDecoder(bytes.NewReader(data))
	var document, second yamlnode.Node
	switch err := documents.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: the file is empty; it begins with apiVersion: %s and kind: %s", c.path, configAPIVersion, configKind)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", c.path, err)
	}
	switch err := documents.Decode(&second); {
	case err == nil:
		return nil, fmt.Errorf("%s:%d: a second document; a file has one configuration", c.path, second.Line)
	case !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: %w", c.path, err)
	}
	root := document.Content[0]
	if root.Kind != yamlnode.MappingNode {
		return nil, fmt.Errorf("%s:%d: a configuration is fields with values", c.path, root.Line)
	}
	return root, nil
}

// read sets the flags. For a file with another kind or version, it only records an error.
func (c *configFile) read(root *yamlnode.Node) {
	lines := map[string]int{}
	is := map[string]string{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if key := root.Content[i].Value; key == "apiVersion" || key == "kind" {
			is[key] = root.Content[i+1].Value
		}
	}
	if is["apiVersion"] != configAPIVersion || is["kind"] != configKind {
		c.wrong(root, "it has apiVersion %q and kind %q; this version reads apiVersion: %s and kind: %s", is["apiVersion"], is["kind"], configAPIVersion, configKind)
		return
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if line, ok := lines[key.Value]; ok {
			c.wrong(key, "%s is in line %d already", key.Value, line)
			continue
		}
		lines[key.Value] = key.Line
		if key.Value == "apiVersion" || key.Value == "kind" {
			continue
		}
		f, ok := c.flags[key.Value]
		if !ok {
			c.wrong(key, "unknown field %q%s", key.Value, c.suggestion(key.Value))
			continue
		}
		values, err := flagValues(f, value)
		if err == nil && !f.Changed { // the command line takes precedence, but the value must still be valid
			err = setFlag(f, values)
		}
		if err != nil {
			c.wrong(value, "%s: %v", key.Value, err)
		}
	}
}

// suggestion returns the field for a name that is spelled like a flag, or with other capitals.
func (c *configFile) suggestion(wrong string) string {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s)) }
	for name := range c.flags {
		if plain(name) == plain(wrong) {
			return fmt.Sprintf("; it is called %s", name)
		}
	}
	return ""
}

// flagValues returns the values of a YAML node: one text, or any number if the flag is a list or a map.
func flagValues(f *pflag.Flag, n *yamlnode.Node) ([]string, error) {
	_, isList := f.Value.(pflag.SliceValue)
	switch kind := f.Value.Type(); {
	case n.Kind == yamlnode.AliasNode || n.Anchor != "":
		return nil, errors.New("anchors and aliases are not supported")
	case n.ShortTag() == "!!null":
		return nil, errors.New("it has no value; leave the field out for the default")
	case isList:
		if n.Kind != yamlnode.SequenceNode {
			return nil, errors.New("want a list of strings")
		}
		return textsOf(n.Content)
	case isMap(kind):
		if n.Kind != yamlnode.MappingNode {
			return nil, errors.New("want names with values")
		}
		texts, err := textsOf(n.Content)
		var pairs []string
		for i := 0; i+1 < len(texts); i += 2 {
			if kind == "mapStringString" && strings.Contains(texts[i]+texts[i+1], ",") {
				return nil, fmt.Errorf("%s: there cannot be a comma in it", texts[i])
			}
			if slices.ContainsFunc(pairs, func(p string) bool { return strings.HasPrefix(p, texts[i]+"=") }) {
				return nil, fmt.Errorf("%s is there twice", texts[i])
			}
			pairs = append(pairs, texts[i]+"="+texts[i+1])
		}
		return pairs, err
	case n.Kind != yamlnode.ScalarNode:
		return nil, errors.New("want one value")
	case kind == "bool":
		if n.ShortTag() != "!!bool" {
			return nil, fmt.Errorf("want true or false, have %q", n.Value)
		}
	case isNumber(kind):
		var number float64
		if tag := n.ShortTag(); tag != "!!int" && (tag != "!!float" || kind != "float64") {
			return nil, fmt.Errorf("want a number, have %q", n.Value)
		}
		if err := n.Decode(&number); err != nil {
			return nil, fmt.Errorf("want a number, have %q", n.Value)
		}
	case kind == logging.AccessDestinationType && n.ShortTag() == "!!bool":
	case n.ShortTag() != "!!str":
		if kind == "duration" {
			return nil, fmt.Errorf("want a length of time with its unit, such as %ss, have %q", n.Value, n.Value)
		}
		return nil, fmt.Errorf("want a string; write %q", n.Value)
	}
	return []string{n.Value}, nil
}

func textsOf(nodes []*yamlnode.Node) ([]string, error) {
	texts := []string{}
	for _, n := range nodes {
		if n.Kind != yamlnode.ScalarNode || n.ShortTag() != "!!str" || n.Anchor != "" {
			return nil, fmt.Errorf("line %d: want a string; write %q", n.Line, n.Value)
		}
		texts = append(texts, n.Value)
	}
	return texts, nil
}

func isMap(kind string) bool { return kind == "stringToString" || kind == "mapStringString" }

func isNumber(kind string) bool {
	return slices.Contains([]string{"int", "int32", "int64", "uint", "uint32", "uint64", "float64"}, kind)
}

// setFlag sets a flag as if it had been on the command line.
func setFlag(f *pflag.Flag, values []string) error {
	var err error
	switch list, isList := f.Value.(pflag.SliceValue); {
	case isList:
		err = list.Replace(values)
	case f.Value.Type() == "stringToString":
		var line strings.Builder
		w := csv.NewWriter(&line)
		if err = w.Write(values); err == nil && len(values) > 0 {
			w.Flush()
			err = f.Value.Set(strings.TrimSuffix(line.String(), "\n"))
		}
	case f.Value.Type() == "mapStringString":
		err = f.Value.Set(strings.Join(values, ","))
	default:
		err = f.Value.Set(values[0])
	}
	if err != nil {
		return err
	}
	f.Changed = true
	return nil
}

// PrintConfig writes the values of flags as a configuration file, in groups. Without defaults, it omits flags with
// default values.
func PrintConfig(out io.Writer, sets cliflag.NamedFlagSets, defaults bool) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\n", configAPIVersion, configKind)
	for _, name := range sets.Order {
		head := fmt.Sprintf("\n# %s\n", upperFirst(name))
		var err error
		sets.FlagSets[name].VisitAll(func(f *pflag.Flag) {
			if err != nil || !defaults && f.Value.String() == f.DefValue {
				return
			}
			var text []byte
			var value any
			if value, err = flagValue(f); err == nil {
				text, err = yaml.Marshal(map[string]any{fieldName(f.Name): value})
			}
			b.WriteString(head)
			b.Write(text)
			head = ""
		})
		if err != nil {
			return err
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}

// flagValue returns the value of a flag for YAML.
func flagValue(f *pflag.Flag) (any, error) {
	text := f.Value.String()
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return append([]string{}, list.GetSlice()...), nil // never null
	}
	switch kind := f.Value.Type(); {
	case kind == "bool":
		return strconv.ParseBool(text)
	case kind == logging.AccessDestinationType && (text == "true" || text == "false"):
		return text == "true", nil
	case kind == "float64":
		return strconv.ParseFloat(text, 64)
	case isNumber(kind):
		return strconv.ParseInt(text, 10, 64)
	case isMap(kind):
		pairs := []string{}
		if text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"); text != "" {
			var err error
			if pairs, err = csv.NewReader(strings.NewReader(text)).Read(); err != nil {
				return nil, fmt.Errorf("--%s: %w", f.Name, err)
			}
		}
		all := map[string]string{}
		for _, pair := range pairs {
			name, value, _ := strings.Cut(pair, "=")
			all[name] = value
		}
		return all, nil
	}
	return text, nil
}

// fieldName returns the name of a flag in a configuration file, such as securePort for secure-port.
func fieldName(flag string) string {
	words := strings.Split(flag, "-")
	for i := range words[1:] {
		words[i+1] = upperFirst(words[i+1])
	}
	return strings.Join(words, "")
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
