package aggregator

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/yaml"
)

// IsReloadable reports whether Reload applies new values of a flag. All other flags require a restart, except the log
// level, which is not in Config.
func IsReloadable(flag string) bool { return flag == "audit-policy-file" }

// Reload applies the settings from read that may change while the front door runs: the audit policy, which is read
// again even if the name of its file is the same. It also checks all files that are followed: certificates, CAs,
// tokens, and the configurations of authentication, authorization and encryption. After an error, all settings are
// unchanged.
func (a *Aggregator) Reload(read func() (Config, error)) error {
	h := a.parts.Load()
	if h == nil {
		return errors.New("the front door is starting or stopping; try again when it is ready")
	}
	err := h.reload(read)
	h.Metrics.Reload.Record(err)
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

// CopyFlags sets the flags with the names in from to the same values.
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

// DifferentFlags returns the flags that have other values than the same flags in others.
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

// flagText returns the value of a flag in a comparable form.
func flagText(f *pflag.Flag) ([]byte, error) {
	value, err := flagValue(f)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(value)
}

// flagTexts returns the value of a flag for setFlag.
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
