package aggregator

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/yaml"
)

// IsReloadable reports whether Reload takes over new values of a flag. Any other needs a restart, but for the log level, which is not one of Config.
func IsReloadable(flag string) bool { return flag == "audit-policy-file" }

// Reload takes over what may change while the front door runs from settings that read returns: the audit policy, whose file is read again also
// if its name is the same. It has all files looked at that are followed: certificates, CAs, tokens, the configurations of authentication,
// authorization and encryption. When there is an error, all settings stay as they are.
func (a *Aggregator) Reload(read func() (Config, error)) error {
	h := a.parts.Load()
	if h == nil {
		return errors.New("the front door is starting or stopping; try again when it is ready")
	}
	err := h.reload(read)
	h.Metrics.Reload.Done(err)
	a.wake.Wake()
	return err
}

func (h *parts) reload(read func() (Config, error)) error {
	c, err := read()
	if err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	if h.audit == nil {
		return nil
	}
	policy, err := c.Audit.LoadPolicy()
	if err != nil {
		return fmt.Errorf("--audit-policy-file: %w", err)
	}
	h.audit.SetPolicy(policy)
	return nil
}

// CopyFlags sets flags as those of the same names in another set that were changed there.
func CopyFlags(to cliflag.NamedFlagSets, from []*pflag.Flag) error {
	for _, f := range from {
		into := lookUp(to, f.Name)
		if into == nil {
			return fmt.Errorf("there is no flag --%s", f.Name)
		}
		values, err := flagTexts(f)
		if err == nil {
			err = setFlag(into, values)
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", f.Name, err)
		}
	}
	return nil
}

// DifferentFlags are the flags whose values are others than those of the same flags in another set.
func DifferentFlags(sets, others cliflag.NamedFlagSets) ([]*pflag.Flag, error) {
	var different []*pflag.Flag
	var errs []error
	for _, name := range sets.Order {
		sets.FlagSets[name].VisitAll(func(f *pflag.Flag) {
			other := lookUp(others, f.Name)
			if other == nil {
				errs = append(errs, fmt.Errorf("there is no flag --%s", f.Name))
				return
			}
			a, err := flagText(f)
			b, errOther := flagText(other)
			if errs = append(errs, err, errOther); !bytes.Equal(a, b) {
				different = append(different, f)
			}
		})
	}
	return different, errors.Join(errs...)
}

func lookUp(sets cliflag.NamedFlagSets, name string) *pflag.Flag {
	for _, set := range sets.FlagSets {
		if f := set.Lookup(name); f != nil {
			return f
		}
	}
	return nil
}

// flagText is a value of a flag in a form in which it can be compared.
func flagText(f *pflag.Flag) ([]byte, error) {
	value, err := flagValue(f)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(value)
}

// flagTexts is what setFlag takes.
func flagTexts(f *pflag.Flag) ([]string, error) {
	value, err := flagValue(f)
	switch v := value.(type) {
	case []string:
		return v, err
	case map[string]string:
		texts := []string{}
		for name, text := range v {
			texts = append(texts, name+"="+text)
		}
		return texts, err
	}
	return []string{f.Value.String()}, err
}
