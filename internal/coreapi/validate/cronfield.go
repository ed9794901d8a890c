package validate

import (
	"fmt"
	"strconv"
	"strings"
)

// cronField is one field of a schedule: its bounds, and the names that some of its numbers have.
type cronField struct {
	least, most int
	names       []string // of least and what follows
}

func cronFields() []cronField {
	return []cronField{
		{0, 59, nil}, {0, 23, nil}, {1, 31, nil},
		{1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
		{0, 6, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
	}
}

// parse reads one item of the list in a field: *, n, n-m, each with /step after it. The words are those of the library
// that kube-apiserver and its controllers parse with.
func (f cronField) parse(item string) error {
	parts := strings.Split(item, "/")
	ends := strings.Split(parts[0], "-")
	first, last := f.least, f.most
	star := ends[0] == "*" || ends[0] == "?"
	if !star {
		var err error
		if first, err = f.number(ends[0]); err != nil {
			return err
		}
		last = first
		switch len(ends) {
		case 1:
		case 2:
			if last, err = f.number(ends[1]); err != nil {
				return err
			}
		default:
			return fmt.Errorf("too many hyphens: %s", item)
		}
	}
	step := 1
	switch len(parts) {
	case 1:
	case 2:
		var err error
		if step, err = cronNumber(parts[1]); err != nil {
			return err
		}
		if !star && len(ends) == 1 {
			last = f.most
		}
	default:
		return fmt.Errorf("too many slashes: %s", item)
	}
	switch {
	case first < f.least:
		return fmt.Errorf("beginning of range (%d) below minimum (%d): %s", first, f.least, item)
	case last > f.most:
		return fmt.Errorf("end of range (%d) above maximum (%d): %s", last, f.most, item)
	case first > last:
		return fmt.Errorf("beginning of range (%d) beyond end of range (%d): %s", first, last, item)
	case step == 0:
		return fmt.Errorf("step of range should be a positive number: %s", item)
	}
	return nil
}

func (f cronField) number(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.least + i, nil
		}
	}
	return cronNumber(text)
}

func cronNumber(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("failed to parse int from %s: %w", text, err)
	}
	if n < 0 {
		return 0, fmt.Errorf("negative number (%d) not allowed: %s", n, text)
	}
	return n, nil
}
